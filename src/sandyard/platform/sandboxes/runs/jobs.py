"""Jobs that reconcile the database with what actually runs."""

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import SandyardError, UnavailableError
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.sandboxes.ids import SandboxIds
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.ports import SandboxStore
from sandyard.platform.sandboxes.runs.end_model import idle_reason
from sandyard.platform.sandboxes.runs.lost_model import is_last_run, past_run_of
from sandyard.platform.sandboxes.runs.model import Transitions, expire_snapshot, warn_of_expiry
from sandyard.platform.sandboxes.runs.recorder import RunRecorder, run_id_of
from sandyard.platform.sandboxes.service import Sandboxes
from sandyard.platform.usage.model import PriceList
from sandyard.runtime.model import Ended, Running, RunState
from sandyard.runtime.ports import Runtime
from sandyard.runtime.sessions.model import Process

logger = logging.getLogger(__name__)

RECONCILE = actor("job", "reconcile")
ENDS = actor("job", "ends")
SNAPSHOTS = actor("job", "snapshots")

_PAGE = 200
_BEGINNING = timedelta(seconds=15)
"""How long the runtime may not yet list a sandbox that is starting."""
_UNREFERENCED_FOR = timedelta(hours=1)
"""How old an unreferenced snapshot must be to be removed: a newer one may be about to be recorded.
"""


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
            with suppress(SandyardError):  # the next run tries again
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
            with suppress(SandyardError):
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
                report.adopted += await self._recorder.record_started(
                    sandbox.sandbox_id, sandbox.attempt, run, actor=actor
                )
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
        with suppress(SandyardError):  # the next run tries again
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
        with suppress(SandyardError):
            ended = await self._end_orphan(run, report)
            if sandbox is None or not _is_needed(ended, sandbox):
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


@dataclass(slots=True)
class SnapshotReport:
    expired: int = 0
    warned: int = 0
    unreferenced_removed: int = 0


class ExpireSnapshots:
    """Removes expired snapshots, and warns their owners before."""

    def __init__(
        self,
        store: SandboxStore,
        runtime: Runtime,
        *,
        clock: Clock,
        ids: SandboxIds,
        prices: PriceList,
        warn_before: timedelta,
        retention: timedelta,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._clock = clock
        self._ids = ids
        self._prices = prices
        self._warn_before = warn_before
        self._retention = retention

    async def run(self) -> SnapshotReport:
        report = SnapshotReport()
        cause = Cause.by(SNAPSHOTS, self._clock)
        until, after = cause.at + self._warn_before, ""
        while page := await self._store.with_snapshot_until(until, limit=_PAGE, after=after):
            after = page[-1].sandbox_id
            for sandbox in page:
                cause = Cause.by(SNAPSHOTS, self._clock)
                report.warned += await self._warn(sandbox, cause)
                report.expired += await self._expire(sandbox, cause)
        report.unreferenced_removed = await self._remove_unreferenced(cause)
        report.unreferenced_removed += await self._remove_archives(cause)
        return report

    async def _warn(self, sandbox: Sandbox, cause: Cause) -> bool:
        transitions = warn_of_expiry(
            sandbox, warn_before=self._warn_before, ids=self._ids.new(), cause=cause
        )
        return await self._apply(transitions)

    async def _expire(self, sandbox: Sandbox, cause: Cause) -> bool:
        snapshot_id = sandbox.latest_snapshot_id
        transitions = expire_snapshot(
            sandbox, ids=self._ids.new(), prices=self._prices, cause=cause
        )
        if snapshot_id is None or not await self._apply(transitions):
            return False
        await self._runtime.delete_snapshot(snapshot_id)
        return True

    async def _apply(self, transitions: Transitions | None) -> bool:
        """An entity that has changed since it was read is left to the next run."""
        return transitions is not None and await self._store.apply(*transitions)

    async def _remove_archives(self, cause: Cause) -> int:
        """Archives of deleted templates and failed builds."""
        old = [
            archive.id
            for archive in await self._runtime.list_archives()
            if cause.at - utc_time(archive.created_at) > _UNREFERENCED_FOR
        ]
        unused = set(old) - await self._store.referenced_archives(old)
        for archive_id in unused:
            await self._runtime.delete_archive(archive_id)
        return len(unused)

    async def _remove_unreferenced(self, cause: Cause) -> int:
        old = [
            snapshot.id
            for snapshot in await self._runtime.list_snapshots()
            if cause.at - utc_time(snapshot.created_at) > _UNREFERENCED_FOR
        ]
        referenced = await self._store.referenced_snapshots(old)
        removed = 0
        for snapshot_id in set(old) - referenced - await self._unrecorded(cause):
            try:
                await self._runtime.delete_snapshot(snapshot_id)
            except UnavailableError as error:  # the others must not wait for it
                logger.warning(
                    "an orphaned snapshot could not be removed",
                    extra={"action": "snapshots", "reason": error.reason},
                )
            else:
                removed += 1
        return removed

    async def _unrecorded(self, cause: Cause) -> set[str]:
        """Snapshots of last runs, which are about to be recorded if they are not yet."""
        found: set[str] = set()
        for run in await self._runtime.list_runs("sandbox"):
            if not isinstance(run, Ended) or run.snapshot is None:
                continue
            sandbox = await self._store.find(run.run_id.id)
            is_fresh = cause.at - utc_time(run.ended_at) < self._retention
            if is_fresh and sandbox is not None and _is_needed(run, sandbox):
                found.add(run.snapshot.id)
        return found


def _is_needed(run: Ended, sandbox: Sandbox) -> bool:
    """The logs of the last attempt are retained until the next start, and what is needed to recover
    the files of the last run."""
    has_its_files = run.snapshot is not None and run.snapshot.id == sandbox.latest_snapshot_id
    return has_its_files or is_last_run(past_run_of(run), sandbox)
