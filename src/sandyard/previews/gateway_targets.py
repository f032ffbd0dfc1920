"""Previews as the gateway sees them, by the id of their project."""

from dataclasses import dataclass

from sandyard.kit.clock import Clock, utc_time
from sandyard.previews.errors import SandboxGoneError
from sandyard.previews.model import may_be_running
from sandyard.previews.ports import PreviewStore, ProjectLookup
from sandyard.previews.providers.local import LocalPreviewProvider
from sandyard.runtime.sessions.ports import Ports


@dataclass(frozen=True, slots=True)
class ReachablePreview:
    account_id: str
    is_running: bool
    is_public: bool = False
    public_ports: tuple[int, ...] = ()
    reports_missing_token: bool = False
    wakes: bool = False
    not_running_reason: str = "The preview has ended. Sync the project to see it again."


@dataclass(frozen=True, slots=True)
class PreviewTargets:
    store: PreviewStore
    projects: ProjectLookup
    provider: LocalPreviewProvider | None
    """Without it, previews have their own addresses and are not reached here."""
    clock: Clock
    port: int

    async def find(self, target_id: str) -> ReachablePreview | None:
        preview = await self.store.find(target_id)
        if preview is None or self.provider is None:
            return None
        is_running = may_be_running(preview.info, now=utc_time(self.clock.now()))
        return ReachablePreview(preview.account_id, is_running=is_running)

    async def ports(self, target_id: str) -> Ports:
        preview = await self.store.find(target_id)
        if preview is None or preview.info is None or self.provider is None:
            raise SandboxGoneError
        return await self.provider.ports(preview.info.sandbox_id)

    async def wake(self, target_id: str) -> ReachablePreview:
        """Previews are only created by a sync."""
        raise SandboxGoneError(f"The preview of {target_id} has ended.")

    async def is_owned(self, target_id: str, *, account_id: str) -> bool:
        return await self.projects.find(account_id, target_id) is not None

    async def program_port(self, target_id: str) -> int | None:  # noqa: ARG002 - all have the same
        return None if self.provider is None else self.port
