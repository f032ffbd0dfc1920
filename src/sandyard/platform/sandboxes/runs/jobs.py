"""Jobs that reconcile the database with what actually runs."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from sandyard.kit.changes.events import actor
from sandyard.kit.clock import utc_time
from sandyard.kit.concurrency.tasks import for_each
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.node import SandboxNode, run_id_of
from sandyard.platform.sandboxes.ports import RunningSecrets
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.platform.sandboxes.runs.end_model import SYSTEM, idle_reason
from sandyard.platform.sandboxes.runs.lost_model import is_needed
from sandyard.platform.sandboxes.runs.recorder import RunRecorder
from sandyard.platform.sandboxes.service import Sandboxes
from sandyard.runtime.errors import MemoryNotKeptError, RuntimeUnavailableError
from sandyard.runtime.model import Ended, RunId, Running, RunState
from sandyard.runtime.sessions.model import Process
from sandyard.runtime.store.errors import StoreUnavailableError, StoringError

logger = logging.getLogger(__name__)

RECONCILE = actor("job", "reconcile")
ENDS = actor("job", "ends")

_AT_ONCE = 16
_STORE_SEC = 0.2
"""How long an end waits for the store; other ends must not wait for a large upload."""
_BEGINNING = timedelta(seconds=15)
"""How long the runtime may not yet list a sandbox that is starting."""

_FILES_FOR = timedelta(minutes=10)
"""How long the record of a machine for files is left to its call."""


@dataclass(slots=True)
class ReconcileReport:
    adopted: int = 0
    """Running, and now recorded as such."""
    closed: int = 0
    lost: int = 0
    overdue: int = 0
    """On silent nodes, and past their deadline."""
    orphans_ended: int = 0
    idle_stopped: int = 0
    recovered: int = 0
    """Files found of runs that had ended without a report from this node."""


class Reconcile:
    """Compares what should run on this node with what does.

    Only the runtime's runs of sandboxes are touched. A program whose sandbox has ended or does not
    exist is ended. On other nodes, only sandboxes are ended that should have ended by now, and of
    which the node has reported nothing for its `silent_for`.
    """

    def __init__(
        self,
        node: SandboxNode,
        sandboxes: Sandboxes,
        recorder: RunRecorder,
        secrets: RunningSecrets | None = None,
    ) -> None:
        self._node = node
        self._store, self._runtime = node.store, node.runtime
        self._sandboxes = sandboxes
        self._recorder = recorder
        self._secrets = secrets
        self._recorded: dict[RunId, object] = {}
        """The version of each run that needed nothing when it was last looked at."""

    async def run(self) -> ReconcileReport:
        report = ReconcileReport()
        compared = await self._compare(RECONCILE, report)
        for run_id in sorted({*await self._runtime.run_ids("sandbox")} - compared, key=str):
            with retried_later("reconcile", run_id.id):
                if (run := await self._runtime.refresh(run_id)) is not None:
                    await self._check_run(run, report)
        for run in await self._runtime.list_runs("files"):  # of calls that were lost with a server
            if isinstance(run, Ended) and self._node.now() - utc_time(run.ended_at) > _FILES_FOR:
                with retried_later("reconcile", run.run_id.id):
                    await self._runtime.forget(run.run_id)
        return report

    async def collect_ends(self) -> ReconcileReport:
        """Record ends, and runs whose start was not recorded; end those of deactivated accounts.
        Bring the secrets of running sandboxes up to date."""
        report = ReconcileReport()
        await self._compare(ENDS, report)
        if self._secrets is not None:
            await self._secrets.run()
        return report

    async def _compare(self, actor: str, report: ReconcileReport) -> set[RunId]:
        """Look at what has changed since it was last looked at. Returns all that are active."""
        for sandbox in await self._store.active_of_deactivated(self._node.name):
            with retried_later("end", sandbox.sandbox_id):
                reason = "its account was deactivated"
                await self._sandboxes.end(sandbox, actor=actor, reason=reason)
                report.closed += 1
        asked_at = self._node.now()  # one that ends after its answer was not alive at the end
        versions = await self._runtime.versions("sandbox")
        active = {run_id_of(each): each for each in await self._store.active_runs(self._node.name)}
        unchanged = {
            run_id: version
            for run_id, version in self._recorded.items()
            if run_id in active
            and versions.get(run_id) == version
            and idle_reason(active[run_id], now=asked_at) is None
        }
        self._recorded = dict(unchanged)
        seen = [run_id.id for run_id in unchanged]
        changed = [run_id.id for run_id in active if run_id not in unchanged]

        async def record(sandbox: Sandbox) -> None:
            if await self._record(sandbox, versions, actor, report):
                seen.append(sandbox.sandbox_id)

        found = await self._store.active_of(self._node.name, changed)
        await for_each(found, record, slots=asyncio.Semaphore(_AT_ONCE))
        await self._store.note_seen(seen, at=asked_at)
        for sandbox in await self._store.to_recycle(self._node.name, now=self._node.now()):
            with retried_later("recycle", sandbox.sandbox_id):
                owner = Principal(sandbox.owner_account_id, Role.USER, acts_as=ENDS)
                await self._sandboxes.recycle(sandbox.sandbox_id, by=owner)
        await self._end_overdue(actor, report)
        return set(active)

    async def _end_overdue(self, actor: str, report: ReconcileReport) -> None:
        node = self._node
        since = node.now() - node.silent_for
        for sandbox in await self._store.active_elsewhere(node.name, unseen_since=since):
            report.overdue += await self._recorder.record_overdue(sandbox, actor=actor)

    async def _record(
        self,
        sandbox: Sandbox,
        versions: Mapping[RunId, object],
        actor: str,
        report: ReconcileReport,
    ) -> bool:
        """Record what the runtime reports of it; returns whether it has a living run. One whose
        record is broken is left as it is, and does not stop the others."""
        run_id = run_id_of(sandbox)
        try:
            # A start's machine may be up while the server that began the start is gone.
            is_known = run_id in versions and sandbox.status is not Status.STARTING
            run = await (self._runtime.find if is_known else self._runtime.refresh)(run_id)
        except RuntimeUnavailableError as error:
            extra = {"action": actor, "sandbox_id": sandbox.sandbox_id, "reason": error.reason}
            logger.warning("a sandbox could not be looked up", extra=extra)
            return False
        match run:
            case Ended():
                return await self._record_ended(sandbox, run, actor, report)
            case Running() if sandbox.status is Status.STARTING:
                started = await self._recorder.record_started(
                    sandbox.sandbox_id, sandbox.attempt, run, actor=actor
                )
                report.adopted += started is not None
            case Running():
                await self._recorder.record_program(sandbox, run, actor=SYSTEM)
                if run_id in versions:
                    self._recorded[run_id] = versions[run_id]
                await self._stop_if_idle(sandbox, run, actor, report)
            case None if self._node.now() - sandbox.updated_at > _BEGINNING:
                is_lost = await self._recorder.record_lost(sandbox, actor=actor)
                report.lost += is_lost
        return run is not None

    async def _record_ended(
        self, sandbox: Sandbox, run: Ended, actor: str, report: ReconcileReport
    ) -> bool:
        """Returns whether its files are still to be stored: the next run asks again."""
        try:
            is_closed = await self._recorder.record_ended(
                sandbox, run, actor=actor, timeout_sec=_STORE_SEC
            )
            report.closed += is_closed
        except StoreUnavailableError as error:
            if not isinstance(error, StoringError):
                extra = {"action": actor, "sandbox_id": sandbox.sandbox_id, "reason": error.reason}
                logger.warning("the files of a sandbox could not be stored yet", extra=extra)
            await self._recorder.cap_ended(sandbox, run, actor=actor)
            return True
        return False

    async def _stop_if_idle(
        self, sandbox: Sandbox, run: Running, actor: str, report: ReconcileReport
    ) -> None:
        now = self._node.now()
        reason = idle_reason(sandbox, now=now)
        if reason is None:
            return
        with retried_later("idle-stop", sandbox.sandbox_id):
            session = await self._runtime.session(run.run_id)
            if any(map(_is_use, await session.processes.list())):
                await self._store.note_used(sandbox.sandbox_id, at=now)
                return
            await self._end_idle(sandbox, actor, reason)
            report.idle_stopped += 1

    async def _end_idle(self, sandbox: Sandbox, actor: str, reason: str) -> None:
        end = partial(self._sandboxes.end, sandbox, actor=actor)
        try:
            await end(reason=reason, has_memory=sandbox.has_memory_to_keep)
        except MemoryNotKeptError as error:
            await end(reason=f"{reason}; its processes could not be kept: {error.message}")

    async def _check_run(self, run: RunState, report: ReconcileReport) -> None:
        sandbox = await self._store.find(run.run_id.id)
        if sandbox is not None and sandbox.is_active and run.run_id == run_id_of(sandbox):
            return
        ended = await self._end_orphan(run, report)
        if sandbox is None or not is_needed(ended, sandbox):
            await self._runtime.forget(run.run_id)
        elif not sandbox.is_active:
            report.recovered += await self._recorder.recover(sandbox, ended, actor=RECONCILE)

    async def _end_orphan(self, run: RunState, report: ReconcileReport) -> Ended:
        if isinstance(run, Ended):
            return run
        ended = await self._runtime.stop(run.run_id)
        report.orphans_ended += 1
        logger.warning(
            "a program without a sandbox was ended",
            extra={"action": "reconcile", "sandbox_id": run.run_id.id},
        )
        return ended


def _is_use(process: Process) -> bool:
    """Commands are, the sandbox's own program is not. A terminal is a use only while a client is
    connected, which is recorded elsewhere; its shell may run forever."""
    return process.is_running and not (process.is_program or process.is_terminal)
