"""Random lives of a pool, checked step by step against a model of what must be true."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.action_model import Action
from sandyard.broker.pool.errors import (
    AllocationExpiredError,
    LeaseTooLongError,
    NoSandboxesAvailableError,
    NotSandboxOwnerError,
    SandboxNotFoundError,
    TransitionNotAllowedError,
)
from sandyard.broker.pool.jobs import Cleanup, Expiry
from sandyard.broker.pool.lease_model import Extension
from sandyard.broker.pool.model import UNUSED, Claimed, Lease, Listed, Sandbox, Status, Tombstone
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.provider_model import DeletionPolicy
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.kit import ids
from tests.fakes.provider import FakeProvider
from tests.support.broker.pools import LAB_SEC, NOW, check_invariants, everything, row
from tests.support.broker.services import new_broker, new_leases, new_queue, new_sync
from tests.support.clocks import ManualClock
from tests.support.storage.engines import broker_database, pool_table

T = TypeVar("T")
TRACKS = st.sampled_from(["a", "b", "c"])
KEYS = st.sampled_from([None, "k1", "k2"])
GRACE = 600
LONGEST = 24 * 3600


class Pool(RuleBasedStateMachine):
    """The model: which leases were answered, and which sandboxes were deleted."""

    engine = "sqlite"
    engine_url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock(NOW)
        self.context = self.open_store()
        self.store: PoolStore = self.run(self.context.__aenter__())
        metrics = BrokerMetrics(CollectorRegistry())
        self.provider = FakeProvider()
        self.tickets = new_queue(self.store, clock=self.clock, ticket_ttl_sec=60)
        self.broker = new_broker(self.store, clock=self.clock, metrics=metrics, queue=self.tickets)
        self.leases_of_tracks = new_leases(
            self.store, clock=self.clock, metrics=metrics, lease_max_sec=LONGEST
        )
        self.sync_job = new_sync(
            self.store, self.provider, clock=self.clock, metrics=metrics, lab_duration_hours=4
        )
        import random

        self.cleanup_job = Cleanup(
            self.store,
            self.provider,
            clock=self.clock,
            metrics=metrics,
            policy=DeletionPolicy(max_attempts=2, backoff_base_sec=60, backoff_max_sec=120),
            parallel=3,
            randomness=random.Random(0),
        )
        self.expiry_job = Expiry(self.store, clock=self.clock, metrics=metrics, grace_sec=GRACE)
        self.leases: dict[tuple[str, str], Lease] = {}
        self.deleted: set[str] = set()
        self.ever_leased: dict[str, str] = {}

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator[PoolStore]:
        folder = Path(self.folder.name)
        async with broker_database(self.engine, folder, self.engine_url, pool_size=2) as database:
            yield SqlPoolStore(database)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.context.__aexit__(None, None, None))
        self.loop.close()
        self.folder.cleanup()

    @property
    def now(self) -> int:
        return int(self.clock.now())

    @initialize(count=st.integers(1, 8))
    def begin(self, count: int) -> None:
        self.provider.sandboxes = {f"e{n}": Listed(f"e{n}", f"lab-{n}") for n in range(count)}
        self.run(self.sync_job.run())

    @rule(track=TRACKS, key=KEYS)
    def allocate(self, track: str, key: str | None) -> None:
        held = self.leases.get((track, key or track))
        live = held is not None and held.is_live(self.now)
        free = self.run(self.store.counts()).by_status[Status.AVAILABLE]
        try:
            claimed = self.run(self.broker.allocate(track_id=track, idempotency_key=key))
        except NoSandboxesAvailableError:
            assert not live, "a repeat must be found before an empty pool is told"
            assert free == 0, "an empty pool was told while sandboxes were free"
            return
        self._learn(track, key or track, claimed)

    @rule(track=TRACKS)
    def queue(self, track: str) -> None:
        answer = self.run(self.broker.queue(track_id=track))
        if isinstance(answer, Claimed):
            self._learn(track, track, answer)
        else:
            assert self.run(self.store.counts()).by_status[Status.AVAILABLE] == 0

    @rule()
    def dispatch(self) -> None:
        self.run(self.tickets.dispatch())

    def _learn(self, track: str, key: str, claimed: Claimed) -> None:
        held = self.leases.get((track, key))
        if held is not None and held.is_live(self.now):
            assert not claimed.is_new
            assert claimed.lease == held
            return
        assert claimed.is_new
        sandbox_id = claimed.lease.sandbox_id
        assert sandbox_id not in self.ever_leased, "a sandbox was leased a second time"
        assert sandbox_id not in self.deleted
        self.ever_leased[sandbox_id] = track
        self.leases[track, key] = claimed.lease

    @rule(track=TRACKS, data=st.data())
    def mark(self, track: str, data: st.DataObject) -> None:
        if not self.ever_leased:
            return
        sandbox_id = data.draw(st.sampled_from(sorted(self.ever_leased)))
        before = self.run(self.store.find(sandbox_id))
        owner = self.ever_leased[sandbox_id]
        try:
            marked = self.run(self.broker.mark_for_deletion(track_id=track, sandbox_id=sandbox_id))
        except NotSandboxOwnerError:
            assert owner != track
        except SandboxNotFoundError:
            assert isinstance(before, Tombstone | None)
        except AllocationExpiredError:
            assert isinstance(before, Sandbox)
            assert before.expires_at is not None
            assert self.now >= before.expires_at
        else:
            assert owner == track
            assert marked.status in ("pending_deletion", "deletion_failed", "deleted")
            self._forget(sandbox_id)

    @rule(track=TRACKS, minutes=st.sampled_from([10, 600, 1300]), key=KEYS)
    def extend(self, track: str, minutes: int, key: str | None) -> None:
        held = self.leases.get((track, track))
        if held is None:
            return
        before = self.run(row(self.store, held.sandbox_id))
        try:
            after = self.run(
                self.leases_of_tracks.extend(held.sandbox_id, Extension(track, minutes, key))
            )
        except AllocationExpiredError:
            assert not held.is_live(self.now)
        except LeaseTooLongError:
            assert held.expires_at + minutes * 60 - held.allocated_at > LONGEST
        else:
            is_repeat = key is not None and key in (before.extension_keys or "").split()
            assert after.expires_at == held.expires_at + (0 if is_repeat else minutes * 60)
            assert after.expires_at - after.allocated_at <= LONGEST
            self.leases[track, track] = after

    @rule(action=st.sampled_from(list(Action)), data=st.data())
    def operate(self, action: Action, data: st.DataObject) -> None:
        rows = self._rows()
        if not rows:
            return
        sandbox = data.draw(st.sampled_from(rows))
        try:
            after = self.run(self.broker.act(action, sandbox_id=sandbox.sandbox_id))
        except TransitionNotAllowedError:
            assert self.run(row(self.store, sandbox.sandbox_id)) == sandbox
        else:
            if after.status is Status.PENDING_DELETION:
                self._forget(sandbox.sandbox_id)

    @rule(gone=st.sets(st.integers(0, 9)), new=st.integers(0, 2))
    def provider_changes(self, gone: set[int], new: int) -> None:
        listed = dict(self.provider.sandboxes)
        for number in gone:
            listed.pop(f"e{number}", None)
        for _ in range(new):
            number = len(self.provider.sandboxes) + len(listed)
            listed.setdefault(f"n{number}", Listed(f"n{number}", f"lab-n{number}"))
        self.provider.sandboxes = listed

    @rule(late=st.booleans(), force=st.booleans())
    def sync(self, late: bool, force: bool) -> None:
        before = {entry.sandbox_id: entry for entry in self._rows()}
        self.provider.list_includes_deleted = late
        report = self.run(self.sync_job.run(force=force))
        for entry in self._rows():
            old = before.get(entry.sandbox_id)
            if old is not None and old.status not in UNUSED:
                assert entry == old, "sync touched a row that is in use"
            assert entry.sandbox_id not in self.deleted, "sync brought a deleted sandbox back"
        if force:
            assert report.held_back == 0

    @rule(works=st.booleans())
    def cleanup(self, works: bool) -> None:
        self.provider.deletes_work = works
        self.run(self.cleanup_job.run())
        self.deleted |= {ids.sandbox_id(external_id) for external_id in self.provider.deleted}

    @rule()
    def expire(self) -> None:
        due = {
            entry.sandbox_id
            for entry in self._rows()
            if entry.status is Status.ALLOCATED
            and entry.expires_at is not None
            and entry.expires_at + GRACE <= self.now
        }
        assert self.run(self.expiry_job.run()).expired == len(due)
        for sandbox_id in due:
            self._forget(sandbox_id)

    @rule(seconds=st.sampled_from([1, 60, GRACE, LAB_SEC - 1, LAB_SEC, LAB_SEC + GRACE]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @invariant()
    def the_pool_is_sound(self) -> None:
        self.run(check_invariants(self.store))

    @invariant()
    def what_is_kept_is_kept_for_a_ticket(self) -> None:
        tickets = self.run(self.store.tickets(limit=50, after=None))
        kept = {each.sandbox_id: each.reserved_for for each in self._rows() if each.reserved_for}
        assert set(kept.values()) <= {each.ticket_id for each in tickets}

    @invariant()
    def every_live_lease_that_was_answered_is_kept(self) -> None:
        for (track, key), lease in self.leases.items():
            if lease.is_live(self.now):
                stored = self.run(row(self.store, lease.sandbox_id))
                assert stored.status is Status.ALLOCATED
                assert (stored.allocated_to_track, stored.idempotency_key) == (track, key)

    def _rows(self) -> list[Sandbox]:
        entries = self.run(everything(self.store))
        return [entry for entry in entries if isinstance(entry, Sandbox)]

    def _forget(self, sandbox_id: str) -> None:
        self.leases = {
            key: lease for key, lease in self.leases.items() if lease.sandbox_id != sandbox_id
        }


def _run(machine: type[Pool], examples: int) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def few_or(many: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("examples", [5, pytest.param(many, marks=pytest.mark.torture)])


@few_or(40)
def test_random_lives_on_sqlite(examples: int) -> None:
    _run(Pool, examples)


@few_or(15)
def test_random_lives_on_postgresql(postgres_url: str, examples: int) -> None:
    class PostgresPool(Pool):
        engine = "postgresql"

    PostgresPool.engine_url = postgres_url
    _run(PostgresPool, examples)


@few_or(8)
def test_random_lives_on_dynamodb(dynamo_url: str, examples: int) -> None:
    class DynamoPool(Pool):
        @asynccontextmanager
        async def open_store(self) -> AsyncIterator[PoolStore]:
            async with pool_table(dynamo_url) as pool:
                yield DynamoPoolStore(pool, clock=self.clock, prefetch_size=3, counts_age_sec=0)

    _run(DynamoPool, examples)
