"""Jobs that keep rows and reality together."""

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import SandyardError, UnavailableError
from sandyard.kit.ids import IdMaker
from sandyard.platform.notifications.model import Notice, NotificationType
from sandyard.platform.runtime.model import Ended, Held, Running
from sandyard.platform.runtime.ports import Runtime
from sandyard.platform.sandboxes.endings import Endings
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.ports import SandboxStore
from sandyard.platform.sandboxes.service import Sandboxes, owner_of

logger = logging.getLogger(__name__)

_PAGE = 200
_BEGINNING = timedelta(seconds=15)
"""How long the runtime may not know yet of a sandbox that is starting."""
_UNCLAIMED = timedelta(hours=1)
"""How old a snapshot of nobody's is before it is removed: one may be about to be recorded."""


@dataclass(slots=True)
class ReconcileReport:
    adopted: int = 0
    """Running, and now recorded so."""
    closed: int = 0
    lost: int = 0
    orphans_ended: int = 0


class Reconcile:
    """Compares what should run on this machine with what does.

    Only what the runtime holds for sandboxes is touched. A program whose sandbox has ended, or
    that no sandbox knows, is ended.
    """

    def __init__(
        self,
        store: SandboxStore,
        runtime: Runtime,
        sandboxes: Sandboxes,
        endings: Endings,
        *,
        clock: Clock,
        node: str,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._sandboxes = sandboxes
        self._endings = endings
        self._clock = clock
        self._node = node

    async def run(self) -> ReconcileReport:
        report = await self.collect_ends()
        for held in await self._runtime.list_held("sandbox"):
            await self._check_owner(held, report)
        return report

    async def collect_ends(self) -> ReconcileReport:
        """Record what has ended, and what runs although its start was never recorded; end what
        runs for a deactivated account."""
        report = ReconcileReport()
        now = utc_time(self._clock.now())
        for sandbox in await self._store.active_of_deactivated(self._node, now=now):
            with suppress(SandyardError):  # it is met again in the next run
                await self._sandboxes.end(sandbox, because="its account was deactivated")
                report.closed += 1
        for sandbox in await self._store.active_on(self._node, now=now):
            held = await self._runtime.find(owner_of(sandbox))
            match held:
                case Ended():
                    report.closed += await self._endings.record(sandbox, held)
                case Running() if sandbox.status is Status.STARTING:
                    report.adopted += await self._sandboxes.record_running(
                        sandbox, sandbox.attempt, held
                    )
                case None if now - sandbox.updated_at > _BEGINNING:
                    report.lost += await self._endings.record_lost(sandbox)
        return report

    async def _check_owner(self, held: Held, report: ReconcileReport) -> None:
        now = utc_time(self._clock.now())
        sandbox = await self._store.find(held.owner.id, account_id=None, now=now)
        if sandbox is not None and _may_stay(held, sandbox):
            return
        with suppress(SandyardError):
            if not isinstance(held, Ended):
                await self._runtime.stop(held.owner)
                report.orphans_ended += 1
                logger.warning(
                    "a program that no sandbox has was ended",
                    extra={"action": "reconcile", "sandbox_id": held.owner.id},
                )
            await self._runtime.forget(held.owner)


@dataclass(slots=True)
class SnapshotReport:
    expired: int = 0
    warned: int = 0
    unclaimed_removed: int = 0


class KeepSnapshots:
    """Removes snapshots whose time is over, and warns their owners before."""

    def __init__(
        self,
        store: SandboxStore,
        runtime: Runtime,
        endings: Endings,
        *,
        clock: Clock,
        make_usage_id: IdMaker,
        warn_before: timedelta,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._endings = endings
        self._clock = clock
        self._make_usage_id = make_usage_id
        self._warn_before = warn_before

    async def run(self) -> SnapshotReport:
        report = SnapshotReport()
        now = utc_time(self._clock.now())
        after = ""
        while page := await self._store.with_snapshot_until(
            now + self._warn_before, limit=_PAGE, after=after, now=now
        ):
            after = page[-1].sandbox_id
            for sandbox in page:
                await self._look_at(sandbox, now, report)
        await self._remove_unclaimed(now, report)
        return report

    async def _look_at(self, sandbox: Sandbox, now: datetime, report: SnapshotReport) -> None:
        expires_at = sandbox.snapshot_expires_at
        if expires_at is None or sandbox.latest_snapshot_id is None or sandbox.is_active:
            return
        if expires_at > now:
            report.warned += await self._store.warn_of_expiry(
                sandbox, _expiry_notice(sandbox, expires_at), now=now
            )
        elif await self._store.drop_snapshot(
            sandbox,
            now=now,
            usage_id=self._make_usage_id(),
            storage_rate=self._endings.storage_rate(sandbox),
        ):
            await self._runtime.delete_snapshot(sandbox.latest_snapshot_id)
            report.expired += 1

    async def _remove_unclaimed(self, now: datetime, report: SnapshotReport) -> None:
        old = [
            snapshot.id
            for snapshot in await self._runtime.list_snapshots()
            if now - utc_time(snapshot.created_at) > _UNCLAIMED
        ]
        claimed = await self._store.claimed_snapshots(old)
        for snapshot_id in set(old) - claimed:
            try:
                await self._runtime.delete_snapshot(snapshot_id)
            except UnavailableError as error:  # the others are not to wait for it
                logger.warning(
                    "a snapshot of nobody's could not be removed",
                    extra={"action": "snapshots", "reason": error.reason},
                )
            else:
                report.unclaimed_removed += 1


def _may_stay(held: Held, sandbox: Sandbox) -> bool:
    """It runs as it should, or has ended and its logs are kept until the next start."""
    if str(sandbox.attempt) != held.owner.attempt or sandbox.status is Status.RECYCLED:
        return False
    return sandbox.is_active or isinstance(held, Ended)


def _expiry_notice(sandbox: Sandbox, expires_at: datetime) -> Notice:
    return Notice(
        title=f"The files of {sandbox.name} expire soon",
        message=(
            f"They are removed at {expires_at:%Y-%m-%d %H:%M} UTC. Start the sandbox to keep them."
        ),
        type=NotificationType.WARNING,
        related_entity_type="sandbox",
        related_entity_id=sandbox.sandbox_id,
    )
