"""The options of `sandyard serve`."""

from dataclasses import dataclass
from pathlib import Path

from sandyard.entrypoints.server.listeners import Tls
from sandyard.entrypoints.server.welcome import local_url


@dataclass(frozen=True, slots=True)
class ServeOptions:
    host: str
    port: int
    data_dir: Path
    worker_of: int | None = None
    """The process id of the parent, which has checked the port and acts for all its workers."""
    tls: Tls | None = None
    start_empty: bool = False
    """Also if another engine that is configured has the data of a part."""

    @property
    def url(self) -> str:
        return local_url(self.host, self.port, scheme="http" if self.tls is None else "https")
