"""Previews as the gateway sees them, by the id of their project."""

from dataclasses import dataclass

from sandyard.kit.clock import Clock, utc_time
from sandyard.previews.model import may_be_running
from sandyard.previews.ports import PreviewStore, ProjectLookup
from sandyard.previews.providers.errors import SandboxGoneError
from sandyard.previews.providers.ports import ReachablePreviews
from sandyard.runtime.sessions.ports import Ports


@dataclass(frozen=True, slots=True)
class ReachablePreview:
    account_id: str
    is_running: bool
    is_public: bool = False
    reports_missing_token: bool = False
    wakes: bool = False
    not_running_reason: str = "The preview has ended. Sync the project to see it again."


class PreviewTargets:
    def __init__(
        self,
        store: PreviewStore,
        projects: ProjectLookup,
        provider: ReachablePreviews | None,
        *,
        clock: Clock,
        program_port: int,
    ) -> None:
        """Without a provider, previews have their own addresses and are not reached here."""
        self._store = store
        self._projects = projects
        self._provider = provider
        self._clock = clock
        self._program_port = program_port

    async def find(self, target_id: str) -> ReachablePreview | None:
        preview = await self._store.find(target_id)
        if preview is None or self._provider is None:
            return None
        is_running = may_be_running(preview.info, now=utc_time(self._clock.now()))
        return ReachablePreview(preview.account_id, is_running=is_running)

    async def ports(self, target_id: str) -> Ports:
        preview = await self._store.find(target_id)
        if preview is None or preview.info is None or self._provider is None:
            raise SandboxGoneError
        return await self._provider.ports(preview.info.sandbox_id)

    async def wake(self, target_id: str) -> ReachablePreview:
        """Previews are only created by a sync."""
        raise SandboxGoneError(f"The preview of {target_id} has ended.")

    async def is_owned(self, target_id: str, *, account_id: str) -> bool:
        return await self._projects.find(account_id, target_id) is not None

    async def program_port(self, target_id: str) -> int | None:  # noqa: ARG002 - all have the same
        return None if self._provider is None else self._program_port
