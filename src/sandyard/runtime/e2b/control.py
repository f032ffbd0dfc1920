"""E2B's control API, each request with its timeout and its errors."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, Literal

from sandyard.runtime.e2b.errors import E2bGoneError, E2bMissingError, translation
from sandyard.runtime.remote import sdk as kit
from sandyard.runtime.remote.backoff import Backoff, SandboxBackoffs

if TYPE_CHECKING:
    from e2b import AsyncSandbox, SandboxInfo, SandboxMetrics

State = Literal["running", "paused", "gone"]
_PAGE = 100


@dataclass(frozen=True, slots=True)
class E2bTimeouts:
    """Timeouts of a request, a create or resume, a command inside, a snapshot."""

    request_sec: float = 10
    create_sec: float = 60
    command_sec: float = 30
    snapshot_sec: float = 120
    snapshot_retry_sec: float = 600
    """For a snapshot, before a program is ended without one."""


class E2bControl:
    def __init__(
        self,
        api_key: str,
        *,
        api_url: str | None = None,
        sandbox_url: str | None = None,
        timeouts: E2bTimeouts | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """The default is E2B's own URLs. Raises E2bMissingError without the SDK."""
        try:
            self._sandboxes = kit.open_sandboxes(api_key, api_url=api_url, sandbox_url=sandbox_url)
        except ImportError as error:
            raise E2bMissingError from error
        self.sandbox_url = sandbox_url
        self.timeouts = timeouts or E2bTimeouts()
        self._backoff = backoff or Backoff()
        self.backoffs = SandboxBackoffs(self._backoff)

    async def check(self) -> None:
        """Return if E2B answers and accepts the key."""
        async with self._translated():
            await self._sandboxes.list(limit=1).next_items()

    async def create(
        self, template: str, *, lifetime_sec: float, metadata: Mapping[str, str]
    ) -> "AsyncSandbox":
        """A new sandbox. The request is sent once; if its answer is lost, list by metadata.

        At its end it is paused, not killed, because its files are still to be stored.
        """
        async with self._translated(self.timeouts.create_sec):
            return await self._sandboxes.create(
                template,
                timeout=_seconds(lifetime_sec),
                metadata=dict(metadata),
                lifecycle={"on_timeout": "pause", "auto_resume": False},
            )

    async def connect(
        self, sandbox_id: str, *, lifetime_sec: float = kit.SHORTEST_SEC
    ) -> "AsyncSandbox":
        """The sandbox, which lives at least this long; a paused one is resumed."""
        async with self._translated(self.timeouts.create_sec):
            return await self._sandboxes.connect(sandbox_id, timeout=_seconds(lifetime_sec))

    async def get(self, sandbox_id: str) -> "SandboxInfo":
        """Raises E2bGoneError."""
        async with self._translated():
            return await self._sandboxes.get_info(sandbox_id)

    async def state(self, sandbox_id: str) -> State:
        try:
            info = await self.get(sandbox_id)
        except E2bGoneError:
            return "gone"
        return "paused" if info.state.value == "paused" else "running"

    async def list_by_metadata(self, metadata: Mapping[str, str]) -> "Sequence[SandboxInfo]":
        """The sandboxes with this metadata, running and paused."""
        from e2b import SandboxQuery

        found: list[SandboxInfo] = []
        pages = self._sandboxes.list(SandboxQuery(metadata=dict(metadata)), limit=_PAGE)
        while pages.has_next:
            async with self._translated():
                found += await pages.next_items()
        return [each for each in found if metadata.items() <= each.metadata.items()]

    async def set_timeout(self, sandbox_id: str, *, lifetime_sec: float) -> float:
        """Set its end to this long from now; returns the actual end, as E2B may allow less."""
        async with self._translated():
            await self._sandboxes.set_timeout(sandbox_id, _seconds(lifetime_sec))
        return kit.utc((await self.get(sandbox_id)).end_at).timestamp()

    async def kill(self, sandbox_id: str) -> None:
        """Return when it no longer exists."""
        async with self._translated():
            await self._sandboxes.kill(sandbox_id)

    async def metrics(self, sandbox_id: str, *, since: datetime) -> "Sequence[SandboxMetrics]":
        async with self._translated():
            return await self._sandboxes.get_metrics(sandbox_id, start=since)

    async def take_snapshot(self, sandbox_id: str, *, name: str) -> str:
        """Store the disk of a running sandbox; returns the snapshot's id. One of this name is
        replaced."""
        async with self._translated(self.timeouts.snapshot_sec):
            return (await self._sandboxes.create_snapshot(sandbox_id, name)).snapshot_id

    async def has_snapshot(self, snapshot_id: str) -> bool:
        pages = self._sandboxes.list_snapshots(name=snapshot_id, limit=_PAGE)
        while pages.has_next:
            async with self._translated():
                page = await pages.next_items()
            if any(snapshot_id in (each.snapshot_id, *each.names) for each in page):
                return True
        return False

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Return when it no longer exists."""
        async with self._translated():
            await self._sandboxes.delete_snapshot(snapshot_id)

    def _translated(self, within_sec: float | None = None) -> AbstractAsyncContextManager[None]:
        within_sec = within_sec or self.timeouts.request_sec
        return kit.translated(within_sec, translation, backoff=self._backoff)


def _seconds(lifetime_sec: float) -> int:
    return max(ceil(lifetime_sec), kit.SHORTEST_SEC)
