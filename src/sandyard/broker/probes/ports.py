"""The port to what probes a sandbox."""

from typing import Protocol

from sandyard.broker.pool.model import Sandbox


class Prober(Protocol):
    """Checks whether a sandbox is fit for use."""

    async def check(self, sandbox: Sandbox) -> str | None:
        """None if it is; otherwise what is wrong, in a few words. Never raises for a failed
        probe."""

    async def close(self) -> None: ...
