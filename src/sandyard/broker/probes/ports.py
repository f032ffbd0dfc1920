"""The port to what probes a sandbox."""

from typing import Protocol


class Probed(Protocol):
    """The attributes of a sandbox that a probe needs."""

    @property
    def sandbox_id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def external_id(self) -> str: ...


class Prober(Protocol):
    """Checks whether a sandbox is fit for use."""

    async def check(self, sandbox: Probed) -> str | None:
        """None if it is; otherwise what is wrong, in a few words. Never raises for a failed
        probe."""
        ...

    async def close(self) -> None: ...
