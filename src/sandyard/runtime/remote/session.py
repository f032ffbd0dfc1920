"""`session_ports.Session` into a machine at E2B."""

from sandyard.runtime.remote.connection import Channel
from sandyard.runtime.remote.files import E2bFiles
from sandyard.runtime.remote.ports import E2bPorts
from sandyard.runtime.remote.processes import E2bProcesses


class E2bSession:
    def __init__(self, channel: Channel, *, sandbox_url: str | None) -> None:
        self.files = E2bFiles(channel)
        self.processes = E2bProcesses(channel)
        self.ports = E2bPorts(channel, sandbox_url=sandbox_url)

    def as_root(self, *, for_user: bool = False) -> None:
        """None: commands use `sudo` there."""
