"""This server's node: what the use cases and jobs of its sandboxes work with."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.idempotency import is_repeat, new_id
from sandyard.kit.ids import IdMaker, is_resource_id, resource_id
from sandyard.kit.node import require_here
from sandyard.platform.quotas.model import Resources
from sandyard.platform.sandboxes import errors
from sandyard.platform.sandboxes.model import (
    ApprovedStart,
    NewSandbox,
    ProjectState,
    Sandbox,
    Status,
)
from sandyard.platform.sandboxes.ports import SandboxStore
from sandyard.platform.sandboxes.runs.end_model import ActiveRun
from sandyard.platform.sandboxes.runs.model import Accounting, NewIds
from sandyard.platform.usage.model import PriceList
from sandyard.platform.volumes.model import VolumeUse, Wanted, mounts_of, names_of
from sandyard.runtime.model import Mount, RunId, Running
from sandyard.runtime.ports import Runtime

_sandbox_id = partial(new_id, "sbx")
_usage_id = partial(resource_id, "usg")
_notification_id = partial(resource_id, "not")


@dataclass(frozen=True, slots=True)
class SandboxIds:
    sandbox: IdMaker = _sandbox_id
    usage: IdMaker = _usage_id
    notification: IdMaker = _notification_id

    def new(self) -> NewIds:
        return NewIds(self.usage(), self.notification(), self.usage())


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxNode:
    name: str
    store: SandboxStore
    runtime: Runtime
    clock: Clock
    prices: PriceList
    quota: Resources
    per_account: int
    """The maximum of sandboxes of an account, running or not."""
    processes: int
    """Of one sandbox, like its storage."""
    storage_bytes: int
    silent_for: timedelta
    """After how long without a heartbeat a node counts as silent."""
    snapshot_retention: timedelta
    preview_url: Callable[[Running], str]
    """The URL of a run's program."""
    ids: SandboxIds = SandboxIds()
    start_wait_sec: float = 60
    """How long a call waits for a start."""

    async def require_volumes(
        self, new: NewSandbox, project: ProjectState | None, account_id: str
    ) -> None:
        """Raises the errors of `mounts_of`, unless they are mounted now."""
        project_id = None if project is None else project.project_id
        await self._mounts(new.volumes, account_id, project_id)

    async def mounts_of(self, sandbox: Sandbox) -> tuple[Mount, ...]:
        """What it has mounted while it starts and runs."""
        owner, project_id = sandbox.owner_account_id, sandbox.project_id
        return (await self._mounts(sandbox.volumes, owner, project_id))[0]

    async def with_volumes(self, approved: ApprovedStart) -> ApprovedStart:
        """The start that mounts its volumes too. Raises the errors of `mounts_of`."""
        sandbox = approved.sandbox
        if not sandbox.volumes:
            return approved
        owner, project_id = sandbox.owner_account_id, sandbox.project_id
        _, use = await self._mounts(
            sandbox.volumes, owner, project_id, sandbox_id=sandbox.sandbox_id
        )
        return replace(approved, preconditions=(*approved.preconditions, use))

    async def _mounts(
        self, wanted: Wanted | None, account_id: str, project_id: str | None, sandbox_id: str = ""
    ) -> tuple[tuple[Mount, ...], VolumeUse]:
        use = VolumeUse(account_id, names_of(wanted or ()))
        if wanted:
            use = await self.store.read_fact(use)
        mounts = mounts_of(
            wanted or (), use, project_id=project_id, node=self.name, sandbox_id=sandbox_id
        )
        return mounts, use

    async def new_id(self) -> tuple[str, Sandbox | None]:
        """With what an interrupted call with the same key has made by it, and not given up."""
        while True:
            sandbox_id = self.ids.sandbox()
            made = await self.store.find(sandbox_id) if is_repeat() else None
            if made is None or made.status is not Status.RECYCLED:
                return sandbox_id, made

    def now(self) -> datetime:
        return utc_time(self.clock.now())

    def cause(self, actor: str) -> Cause:
        return Cause.by(actor, self.clock)

    def accounting(self, cause: Cause) -> Accounting:
        return Accounting(self.ids.new(), self.prices, cause)

    def require_here(self, sandbox: Sandbox) -> None:
        """Raises SandboxElsewhereError if another node has it."""
        require_here(sandbox.node, node=self.name, error=errors.SandboxElsewhereError)

    async def get(self, sandbox_id: str, *, account_id: str | None) -> Sandbox:
        """The account's sandbox; any account's with None. SandboxUnknownError."""
        is_id = is_resource_id("sbx", sandbox_id)
        found = await self.store.find(sandbox_id, account_id=account_id) if is_id else None
        if found is None:
            raise errors.SandboxUnknownError
        return found

    async def get_started(self, sandbox_id: str, *, account_id: str) -> Sandbox:
        """The account's sandbox, which has run here. NeverStartedError, SandboxElsewhereError."""
        sandbox = await self.get(sandbox_id, account_id=account_id)
        if not sandbox.attempt:
            raise errors.NeverStartedError
        self.require_here(sandbox)
        return sandbox


def run_id_of(sandbox: Sandbox | ActiveRun) -> RunId:
    return RunId("sandbox", sandbox.sandbox_id, str(sandbox.attempt))
