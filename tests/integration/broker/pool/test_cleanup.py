"""Cleanup on the real engines while the provider fails."""

import asyncio
import logging
import random
from typing import cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sandyard.broker.pool.action_model import Action
from sandyard.broker.pool.jobs import CleanupReport
from sandyard.broker.pool.model import Status, Tombstone
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.provider.errors import ProviderUnavailableError
from sandyard.kit import ids
from sandyard.kit.errors import UnavailableError
from sandyard.tools.provider.simulator import Faults
from tests.integration.broker.yard import (
    BACKOFF_BASE_SEC,
    BACKOFF_MAX_SEC,
    DAY,
    DEADLINE_SEC,
    HEALTHY,
    OUTAGE,
    AwayStore,
    GatedProvider,
    Yard,
)
from tests.integration.conftest import Connect, Serve, count, eventually


class TestCleanup:
    async def test_what_was_given_up_is_deleted_at_the_provider_and_buried(
        self, yard: Yard
    ) -> None:
        await yard.fill(5)
        given_up = await yard.give_up(3)
        assert await yard.cleanup().run() == CleanupReport(deleted=3)
        assert await yard.statuses() == {Status.AVAILABLE: 2}
        assert len(yard.simulator.sandboxes) == 2
        for sandbox_id in given_up:
            assert isinstance(await yard.store.find(sandbox_id), Tombstone)
        assert count(yard.metrics.cleanup, outcome="deleted") == 3
        assert await yard.cleanup().run() == CleanupReport()
        assert yard.simulator.calls["delete"] == 3

    async def test_one_that_the_provider_does_not_know_any_more_is_gone(self, yard: Yard) -> None:
        external_ids = await yard.fill(2)
        [sandbox_id] = await yard.give_up()
        yard.hide([identity for identity in external_ids if ids.sandbox_id(identity) == sandbox_id])
        assert await yard.cleanup().run() == CleanupReport(deleted=1)
        assert isinstance(await yard.store.find(sandbox_id), Tombstone)
        assert yard.simulator.calls["delete"] == 1

    async def test_more_than_a_page_goes_in_one_run(self, yard: Yard) -> None:
        await yard.fill(250)
        await yard.give_up(250)
        assert await yard.cleanup(parallel=16).run() == CleanupReport(deleted=250)
        assert yard.simulator.sandboxes == {}
        assert yard.simulator.calls["delete"] == 250

    async def test_more_than_a_page_of_failures_is_tried_once_each_in_one_run(
        self, yard: Yard
    ) -> None:
        await yard.fill(220)
        await yard.give_up(220)
        yard.simulator.faults = OUTAGE
        assert await yard.cleanup(parallel=16).run() == CleanupReport(retried=220)
        assert yard.simulator.calls["delete"] == 220

    @pytest.mark.parametrize("parallel", [1, 3])
    async def test_never_more_deletions_at_once_than_allowed(
        self, yard: Yard, serve: Serve, connect: Connect, parallel: int
    ) -> None:
        await yard.fill(12)
        await yard.give_up(12)
        slow = GatedProvider(yard.simulator)
        provider = connect(await serve(slow.app()))
        cleanup = asyncio.create_task(yard.cleanup(parallel=parallel, provider=provider).run())
        await eventually(lambda: slow.deletes_at_once == parallel)
        slow.delete_gate.set()
        assert await cleanup == CleanupReport(deleted=12)
        assert slow.most_deletes_at_once == parallel

    async def test_some_errors_cost_a_retry_each_and_nothing_else(self, yard: Yard) -> None:
        await yard.fill(40)
        given_up = await yard.give_up(40)
        yard.simulator.randomness = random.Random(3)
        yard.simulator.faults = Faults(error_rate=0.3)
        draws = random.Random(3)
        failures = sum(draws.random() < 0.3 for _ in range(40))
        assert 0 < failures < 40
        report = await yard.cleanup().run()
        assert report == CleanupReport(deleted=40 - failures, retried=failures)
        assert count(yard.metrics.cleanup, outcome="deleted") == 40 - failures
        assert count(yard.metrics.cleanup, outcome="retried") == failures
        assert await yard.statuses() == {Status.PENDING_DELETION: failures}
        yard.simulator.faults = HEALTHY
        yard.clock.advance(BACKOFF_BASE_SEC)
        assert await yard.cleanup().run() == CleanupReport(deleted=failures)
        assert yard.simulator.sandboxes == {}
        for sandbox_id in given_up:
            assert isinstance(await yard.store.find(sandbox_id), Tombstone)

    async def test_a_deletion_that_timed_out_but_happened_is_found_done_at_the_next_try(
        self, yard: Yard
    ) -> None:
        await yard.fill(1)
        [sandbox_id] = await yard.give_up()
        yard.simulator.faults = Faults(delete_latency=2)
        assert await yard.cleanup(read_timeout_sec=1).run() == CleanupReport(retried=1)
        await eventually(lambda: yard.simulator.sandboxes == {})
        yard.clock.advance(BACKOFF_BASE_SEC)
        assert await yard.cleanup().run() == CleanupReport(deleted=1)
        assert isinstance(await yard.store.find(sandbox_id), Tombstone)

    async def test_slow_deletions_are_waited_for(self, yard: Yard) -> None:
        await yard.fill(6)
        await yard.give_up(6)
        yard.simulator.faults = Faults(delete_latency=0.1)
        assert await yard.cleanup(parallel=3).run() == CleanupReport(deleted=6)

    async def test_each_failure_waits_twice_as_long_less_a_random_share(self, yard: Yard) -> None:
        await yard.fill(20)
        given_up = await yard.give_up(20)
        yard.simulator.faults = OUTAGE
        cleanup = yard.cleanup(max_attempts=8)
        for attempt, longest in enumerate([300, 600, 1200, 2400, 3600, 3600], start=1):
            assert await cleanup.run() == CleanupReport(retried=20)
            rows = [await yard.row(sandbox_id) for sandbox_id in given_up]
            assert {row.deletion_retry_count for row in rows} == {attempt}
            assert {row.status for row in rows} == {Status.PENDING_DELETION}
            waits = [(row.next_attempt_at or 0) - yard.now() for row in rows]
            assert all(longest / 2 <= wait <= longest for wait in waits)
            assert len(set(waits)) > 10
            yard.clock.advance(longest)

    async def test_a_failed_deletion_is_not_tried_again_before_it_is_due(self, yard: Yard) -> None:
        await yard.fill(1)
        [sandbox_id] = await yard.give_up()
        yard.simulator.faults = OUTAGE
        await yard.cleanup().run()
        yard.simulator.faults = HEALTHY
        due_at = (await yard.row(sandbox_id)).next_attempt_at
        assert due_at is not None
        for moment in (yard.now(), yard.now() + 1, due_at - 1):
            yard.clock.advance(moment - yard.now())
            assert await yard.cleanup().run() == CleanupReport()
        assert yard.simulator.calls["delete"] == 1
        yard.clock.advance(1)
        assert await yard.cleanup().run() == CleanupReport(deleted=1)

    @pytest.mark.parametrize("max_attempts", [1, 3])
    async def test_after_the_last_attempt_an_operator_is_called(
        self, yard: Yard, caplog: pytest.LogCaptureFixture, max_attempts: int
    ) -> None:
        await yard.fill(1)
        [sandbox_id] = await yard.give_up()
        yard.simulator.faults = OUTAGE
        cleanup = yard.cleanup(max_attempts=max_attempts)
        for _ in range(max_attempts - 1):
            assert await cleanup.run() == CleanupReport(retried=1)
            yard.clock.advance(BACKOFF_MAX_SEC)
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert await cleanup.run() == CleanupReport(failed=1)
        row = await yard.row(sandbox_id)
        assert (row.status, row.deletion_retry_count) == (Status.DELETION_FAILED, max_attempts)
        [alarm] = [record for record in caplog.records if record.levelno == logging.ERROR]
        about = vars(alarm)
        assert (about["sandbox_id"], about["track_id"]) == (sandbox_id, "track-0")
        assert about["attempts"] == max_attempts
        assert count(yard.metrics.cleanup, outcome="retried") == max_attempts - 1
        assert count(yard.metrics.cleanup, outcome="failed") == 1
        yard.simulator.faults = HEALTHY
        yard.clock.advance(30 * DAY)
        assert await cleanup.run() == CleanupReport()
        assert yard.simulator.calls["delete"] == max_attempts

    async def test_an_operator_s_retry_starts_again_from_zero(self, yard: Yard) -> None:
        await yard.fill(1)
        [sandbox_id] = await yard.give_up()
        requested_at = yard.now()
        yard.simulator.faults = OUTAGE
        cleanup = yard.cleanup(max_attempts=2)
        await cleanup.run()
        yard.clock.advance(BACKOFF_MAX_SEC)
        assert await cleanup.run() == CleanupReport(failed=1)
        yard.clock.advance(DAY)
        row = await yard.broker.act(Action.RETRY_DELETION, sandbox_id=sandbox_id)
        assert (row.status, row.deletion_retry_count) == (Status.PENDING_DELETION, 0)
        assert await cleanup.run() == CleanupReport(retried=1)
        row = await yard.row(sandbox_id)
        assert (row.status, row.deletion_retry_count) == (Status.PENDING_DELETION, 1)
        wait = (row.next_attempt_at or 0) - yard.now()
        assert BACKOFF_BASE_SEC / 2 <= wait <= BACKOFF_BASE_SEC
        yard.simulator.faults = HEALTHY
        yard.clock.advance(BACKOFF_BASE_SEC)
        assert await cleanup.run() == CleanupReport(deleted=1)
        buried = await yard.store.find(sandbox_id)
        assert isinstance(buried, Tombstone)
        assert buried.deletion_requested_at == requested_at

    async def test_an_open_circuit_counts_no_attempt_and_asks_nobody(self, yard: Yard) -> None:
        await yard.fill(6)
        await yard.give_up(6)
        before = await yard.rows()
        yard.simulator.faults = OUTAGE
        provider = yard.connect(yard.url, circuit_threshold=2, circuit_timeout_sec=3600)
        cleanup = yard.cleanup(parallel=1, provider=provider)
        assert await cleanup.run() == CleanupReport(retried=2, postponed=4)
        after = await yard.rows()
        tried = [row for row in after.values() if row != before[row.sandbox_id]]
        assert len(tried) == 2
        assert all(row.deletion_retry_count == 1 for row in tried)
        yard.clock.advance(BACKOFF_MAX_SEC)
        report = await cleanup.run()
        assert (report.deleted, report.retried, report.failed) == (0, 0, 0)
        assert report.postponed > 0
        assert await yard.rows() == after
        assert yard.simulator.calls["delete"] == 2
        assert count(yard.metrics.cleanup, outcome="retried") == 2
        yard.simulator.faults = HEALTHY
        assert await yard.cleanup().run() == CleanupReport(deleted=6)

    async def test_an_open_circuit_never_makes_a_deletion_failed(self, yard: Yard) -> None:
        await yard.fill(1)
        [sandbox_id] = await yard.give_up()
        yard.simulator.faults = OUTAGE
        provider = yard.connect(yard.url, circuit_threshold=1, circuit_timeout_sec=3600)
        with pytest.raises(ProviderUnavailableError):
            await provider.list_sandboxes()
        cleanup = yard.cleanup(max_attempts=1, provider=provider)
        for _ in range(5):
            assert await cleanup.run() == CleanupReport(postponed=1)
            yard.clock.advance(BACKOFF_MAX_SEC)
        row = await yard.row(sandbox_id)
        assert (row.status, row.deletion_retry_count) == (Status.PENDING_DELETION, 0)
        assert yard.simulator.calls["delete"] == 0

    async def test_cleanup_resumes_by_itself_when_the_circuit_closes(self, yard: Yard) -> None:
        await yard.fill(4)
        await yard.give_up(4)
        yard.simulator.faults = OUTAGE
        provider = yard.connect(yard.url, circuit_threshold=1, circuit_timeout_sec=0.2)
        with pytest.raises(ProviderUnavailableError):
            await provider.list_sandboxes()
        yard.simulator.faults = HEALTHY
        cleanup = yard.cleanup(provider=provider)
        async with asyncio.timeout(DEADLINE_SEC):
            while await yard.statuses():
                await cleanup.run()
                await asyncio.sleep(0.02)
        assert yard.simulator.sandboxes == {}
        assert count(yard.metrics.cleanup, outcome="deleted") == 4
        assert count(yard.metrics.cleanup, outcome="retried") == 0

    async def test_those_that_never_go_end_in_deletion_failed_though_they_open_the_circuit(
        self, yard: Yard, serve: Serve, connect: Connect
    ) -> None:
        async def refuse(_request: Request) -> Response:
            return Response(status_code=500)

        await yard.fill(5)
        await yard.give_up(5)
        app = Starlette(routes=[Route("/api/sandbox/{identity}", refuse, methods=["DELETE"])])
        provider = connect(
            await serve(app), attempts=3, circuit_threshold=5, circuit_timeout_sec=0.05
        )
        cleanup = yard.cleanup(max_attempts=3, provider=provider)
        async with asyncio.timeout(DEADLINE_SEC):
            while await yard.statuses() != {Status.DELETION_FAILED: 5}:
                await cleanup.run()
                yard.clock.advance(BACKOFF_MAX_SEC)
                await asyncio.sleep(0.05)
        assert count(yard.metrics.cleanup, outcome="failed") == 5

    async def test_an_engine_that_is_away_is_reported_as_away(self, yard: Yard) -> None:
        await yard.fill(3)
        await yard.give_up(3)
        store = yard.store
        yard.store = cast("PoolStore", AwayStore(store))
        with pytest.raises(UnavailableError):
            await yard.cleanup().run()
        yard.store = store
        assert await yard.cleanup().run() == CleanupReport(deleted=3)
        assert yard.simulator.sandboxes == {}
