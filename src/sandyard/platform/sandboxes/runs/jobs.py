"""Jobs that reconcile the database with what actually runs."""

import logging
from dataclasses import dataclass
from datetime import timedelta

from sandyard.kit.changes.events import actor
from sandyard.kit.clock import Clock, utc_time
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.ports import SandboxStore
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.platform.sandboxes.runs.end_model import idle_reason
from sandyard.platform.sandboxes.runs.lost_model import is_needed
from sandyard.platform.sandboxes.runs.recorder import RunRecorder, run_id_of
from sandyard.platform.sandboxes.service import Sandboxes
from sandyard.runtime.model import Ended, Running, RunState
from sandyard.runtime.ports import Runtime
from sandyard.runtime.sessions.model import Process

logger = logging.getLogger(__name__)

RECONCILE = actor("job", "reconcile")
ENDS = actor("job", "ends")

_BEGINNING = timedelta(seconds=15)
"""How long the runtime may not yet list a sandbox that is starting."""


@dataclass(frozen=True, slots=True)
class _Job(Principal):
    """The principal that recycles sandboxes for jobs."""

    @property
    def actor(self) -> str:
        return ENDS


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
    which the node has reported nothing for `silent_for`.
    """

    def __init__(
        self,
        store: SandboxStore,
        runtime: Runtime,
        sandboxes: Sandboxes,
        recorder: RunRecorder,
        *,
        clock: Clock,
        node: str,
        silent_for: timedelta,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._sandboxes = sandboxes
        self._recorder = recorder
        self._clock = clock
        self._node = node
        self._silent_for = silent_for

    async def run(self) -> ReconcileReport:
        report = await self._compare(RECONCILE)
        for run in await self._runtime.list_runs("sandbox"):
            await self._check_run(run, report)
        return report

    async def collect_ends(self) -> ReconcileReport:
        """Record ends, and runs whose start was not recorded; end those of deactivated accounts."""
        return await self._compare(ENDS)

    async def _compare(self, actor: str) -> ReconcileReport:
        report = ReconcileReport()
        for sandbox in await self._store.active_of_deactivated(self._node):
            with retried_later("end", sandbox.sandbox_id):
                reason = "its account was deactivated"
                await self._sandboxes.end(sandbox, actor=actor, reason=reason)
                report.closed += 1
        seen = [
            sandbox.sandbox_id
            for sandbox in await self._store.active_on(self._node)
            if await self._record(sandbox, actor, report)
        ]
        await self._store.note_seen(seen, at=utc_time(self._clock.now()))
        for sandbox in await self._store.to_recycle(self._node):
            with retried_later("recycle", sandbox.sandbox_id):
                owner = _Job(sandbox.owner_account_id, Role.USER)
                await self._sandboxes.recycle(sandbox.sandbox_id, by=owner)
        await self._end_overdue(actor, report)
        return report

    async def _end_overdue(self, actor: str, report: ReconcileReport) -> None:
        since = utc_time(self._clock.now()) - self._silent_for
        for sandbox in await self._store.active_elsewhere(self._node, unseen_since=since):
            report.overdue += await self._recorder.record_overdue(
                sandbox, silent_for=self._silent_for, actor=actor
            )

    async def _record(self, sandbox: Sandbox, actor: str, report: ReconcileReport) -> bool:
        """Record what the runtime reports of it; returns whether it has a living run."""
        run = await self._runtime.find(run_id_of(sandbox))
        match run:
            case Ended():
                report.closed += await self._recorder.record_ended(sandbox, run, actor=actor)
            case Running() if sandbox.status is Status.STARTING:
                started = await self._recorder.record_started(
                    sandbox.sandbox_id, sandbox.attempt, run, actor=actor
                )
                report.adopted += started is not None
            case Running():
                await self._stop_if_idle(sandbox, run, actor, report)
            case None if utc_time(self._clock.now()) - sandbox.updated_at > _BEGINNING:
                report.lost += await self._recorder.record_lost(sandbox, actor=actor)
        return not isinstance(run, Ended | None)

    async def _stop_if_idle(
        self, sandbox: Sandbox, run: Running, actor: str, report: ReconcileReport
    ) -> None:
        now = utc_time(self._clock.now())
        reason = idle_reason(sandbox, now=now)
        if reason is None:
            return
        with retried_later("idle-stop", sandbox.sandbox_id):
            session = await self._runtime.session(run.run_id)
            commands = await session.processes.list()
            if any(_is_use(each, run) for each in commands):
                await self._store.note_used(sandbox.sandbox_id, at=now)
                return
            await self._sandboxes.end(sandbox, actor=actor, reason=reason)
            report.idle_stopped += 1

    async def _check_run(self, run: RunState, report: ReconcileReport) -> None:
        sandbox = await self._store.find(run.run_id.id)
        if sandbox is not None and sandbox.is_active and run.run_id == run_id_of(sandbox):
            return
        with retried_later("reconcile", run.run_id.id):
            ended = await self._end_orphan(run, report)
            if sandbox is None or not is_needed(ended, sandbox):
                await self._runtime.forget(run.run_id)
            elif not sandbox.is_active:
                report.recovered += await self._recorder.recover(
                    sandbox, ended, node=self._node, actor=RECONCILE
                )

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


def _is_use(command: Process, run: Running) -> bool:
    """Its program started before it was running, commands later. A terminal is a use only
    while a client is connected, which is recorded elsewhere; its shell may run forever."""
    is_later = command.started_at > run.started_at
    return command.is_running and is_later and not command.is_terminal
