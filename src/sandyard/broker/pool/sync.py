"""The job `sync`: brings the pool in line with the provider's list."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool import model, provider_model
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.provider.ports import Provider
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.kit import ids
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.clock import Clock
from sandyard.kit.wired import wired

logger = logging.getLogger(__name__)

_SYNC = actor("job", "sync")
_BATCH = 100
"""How many sandboxes are changed before the queue is read again: newcomers may overtake tickets
that are queued during a batch."""

T = TypeVar("T")


@dataclass(slots=True)
class SyncReport:
    listed: int = 0
    added: int = 0
    unchanged: int = 0
    made_stale: int = 0
    restored: int = 0
    renamed: int = 0
    held_back: int = 0
    tombstones_listed: int = 0


@dataclass(slots=True)
class _Comparison:
    """The pool's rows compared with the provider's list."""

    listed: Mapping[str, model.Listed]
    cause: Cause
    known: set[str] = field(default_factory=set)
    available: int = 0
    changes: dict[str, list["_Compared"]] = field(default_factory=lambda: defaultdict(list))
    """By the kind of their event."""
    reserved: list[model.Sandbox] = field(default_factory=list)
    confirmed: list[str] = field(default_factory=list)

    def add(self, row: model.Sandbox) -> None:
        listed = self.listed.get(row.sandbox_id)
        self.known.add(row.sandbox_id)
        self.available += row.status in model.FREE
        if row.status is model.Status.RESERVED and row.reservation_id is not None:
            self.reserved.append(row)
        decided = provider_model.decide_listing(row, listed, cause=self.cause)
        if decided is not None:
            self.changes[decided.events[0].kind].append((row, listed))
        elif provider_model.is_confirmed(row, listed):
            self.confirmed.append(row.sandbox_id)

    @property
    def unknown(self) -> Mapping[str, model.Listed]:
        return {each: self.listed[each] for each in self.listed.keys() - self.known}


_Compared = tuple[model.Sandbox, model.Listed | None]
"""A row and its entry in the list, if any."""


@wired
class Sync:
    """Brings the pool in line with the provider's list, without touching sandboxes in use."""

    store: PoolStore
    provider: Provider
    clock: Clock
    metrics: BrokerMetrics
    lab_duration_hours: float
    assigner: SandboxAssigner

    async def run(self, *, force: bool = False) -> SyncReport:
        """Compare and apply. `force` allows a suspiciously large part of the pool to become
        stale."""
        started = time.perf_counter()
        try:
            report = await self._run(force=force)
        except Exception:
            self.metrics.sync.labels("failed").inc()
            raise
        self.metrics.sync.labels("held_back" if report.held_back else "succeeded").inc()
        self.metrics.sync_duration.observe(time.perf_counter() - started)
        return report

    async def _run(self, *, force: bool) -> SyncReport:
        listed = await self.provider.list_sandboxes()
        cause = Cause.by(_SYNC, self.clock)
        by_id = await _by_sandbox_id(listed)
        comparison = _Comparison(by_id, cause)
        report = SyncReport(listed=len(by_id))
        async for rows in self.store.everything():
            for row in rows:
                comparison.add(row)
        await self._apply(comparison, report, force=force)
        await self._return_orphans(comparison.reserved)
        return report

    async def _return_orphans(self, reserved: Sequence[model.Sandbox]) -> None:
        """Unreserve sandboxes of ended reservations: a lagging index may have hidden them when the
        reservation ended."""
        if not reserved:
            return
        is_open = {each.reservation_id for each in await self.store.open_reservations()}
        cause = Cause.by(_SYNC, self.clock).because("its reservation has ended")
        orphans = [
            row
            for row in reserved
            if row.reserved_for == row.reservation_id and row.reservation_id not in is_open
        ]
        await self.assigner.apply([model.decide_unreserved(row, cause) for row in orphans])

    async def _apply(self, comparison: _Comparison, report: SyncReport, *, force: bool) -> None:
        store, now = self.store, comparison.cause.at_ms // 1000
        unknown = comparison.unknown
        tombstoned = await store.tombstoned(list(unknown))
        new = [each for key, each in unknown.items() if key not in tombstoned]
        report.added = await self._change(new, self._discover)
        changes = comparison.changes
        report.restored = await self._change(changes["sandbox.restored"], _decide_compared)
        report.renamed = await self._change(changes["sandbox.renamed"], _decide_compared)
        missing = changes["sandbox.missing"]
        if provider_model.loses_too_many(len(missing), of=comparison.available) and not force:
            report.held_back = len(missing)
            logger.error(
                "sync was held back: it would make most of the pool stale; check the provider's "
                "list, then force it",
                extra={"action": "sync", "missing": len(missing), "of": comparison.available},
            )
        else:
            report.made_stale = await self._change(missing, _decide_compared)
        await store.confirm_listed(comparison.confirmed, now=now)
        report.unchanged = len(comparison.confirmed)
        await store.renew_tombstones(list(tombstoned), kept_until=model.tombstone_end(now))
        report.tombstones_listed = len(tombstoned)
        self.metrics.tombstones_listed.inc(len(tombstoned))
        await store.drop_tombstones(now=now)

    async def _change(
        self, subjects: Sequence[T], decide: Callable[..., Transition[model.Sandbox] | None]
    ) -> int:
        """Decide and apply in batches, each with the current time: an event must not be written
        long after its timestamp."""
        changed = 0
        for start in range(0, len(subjects), _BATCH):
            cause = Cause.by(_SYNC, self.clock)
            batch = [decide(each, cause=cause) for each in subjects[start : start + _BATCH]]
            decided = [each for each in batch if each is not None]
            changed += sum(await self.assigner.apply(decided))
        return changed

    def _discover(self, listed: model.Listed, *, cause: Cause) -> Transition[model.Sandbox]:
        return provider_model.decide_discovery(
            listed, lab_duration_hours=self.lab_duration_hours, cause=cause
        )


async def _by_sandbox_id(listed: Sequence[model.Listed]) -> dict[str, model.Listed]:
    found: dict[str, model.Listed] = {}
    for start in range(0, len(listed), _BATCH):
        batch = listed[start : start + _BATCH]
        found |= {ids.sandbox_id(each.external_id): each for each in batch}
        await asyncio.sleep(0)  # to hash all at once would make claims wait
    return found


def _decide_compared(compared: _Compared, *, cause: Cause) -> Transition[model.Sandbox] | None:
    return provider_model.decide_listing(*compared, cause=cause)
