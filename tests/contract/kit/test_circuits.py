"""Circuit breakers that share their state through an engine."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from purgatory import AsyncCircuitBreakerFactory
from purgatory.domain.model import OpenedState

from sandyard.broker.stores import tables
from sandyard.kit.circuits import CircuitState, CircuitStore, StoredCircuits
from sandyard.kit.dynamo.job_leases import DynamoCircuits
from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql.job_leases import SqlCircuits
from tests.fakes.pool.store import MemoryCircuits
from tests.support.storage.engines import STORE_ENGINES, broker_database, pool_table


@pytest.fixture(params=[*STORE_ENGINES, "memory"])
async def circuits(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[CircuitStore]:
    if request.param == "memory":
        yield MemoryCircuits({})
        return
    if request.param == "dynamodb":
        async with pool_table(dynamo_url) as pool:
            yield DynamoCircuits(pool.table)
        return
    async with broker_database(request.param, tmp_path, postgres_url) as database:
        yield SqlCircuits(database, tables.circuits)


class Process:
    """Calls of one process under the circuit; `asked` counts those that were let through."""

    def __init__(
        self, store: CircuitStore, *, threshold: int = 3, timeout_sec: float = 3600
    ) -> None:
        stored = StoredCircuits(store, threshold=threshold, timeout_sec=timeout_sec)
        self._breakers = AsyncCircuitBreakerFactory(uow=stored)
        self.asked = 0

    async def call(self, *, fails: bool) -> str:
        try:
            async with await self._breakers.get_breaker("provider"):
                self.asked += 1
                await asyncio.sleep(0)
                if fails:
                    raise LookupError
        except OpenedState:
            return "refused"
        except LookupError:
            return "failed"
        return "answered"


async def test_nothing_is_stored_of_a_circuit_that_never_failed(circuits: CircuitStore) -> None:
    assert await Process(circuits).call(fails=False) == "answered"
    assert await circuits.find("provider") == CircuitState()


async def test_failures_of_one_process_after_another_open_it(circuits: CircuitStore) -> None:
    for _ in range(3):
        assert await Process(circuits).call(fails=True) == "failed"
    opened = await circuits.find("provider")
    assert (opened.state, opened.failures) == ("opened", 3)
    later = Process(circuits)
    assert [await later.call(fails=False) for _ in range(2)] == ["refused"] * 2
    assert later.asked == 0


async def test_replicas_count_together_and_an_answer_ends_the_row(circuits: CircuitStore) -> None:
    one, other = Process(circuits), Process(circuits)
    for process, fails in ((one, True), (other, True), (one, False), (other, True), (one, True)):
        assert await process.call(fails=fails) == ("failed" if fails else "answered")
    assert (await circuits.find("provider")).failures == 2
    assert await other.call(fails=True) == "failed"
    assert await one.call(fails=False) == "refused"


async def test_calls_at_one_time_count_together(circuits: CircuitStore) -> None:
    process = Process(circuits)
    await asyncio.gather(*(process.call(fails=True) for _ in range(3)))
    assert await Process(circuits).call(fails=False) == "refused"


async def test_after_its_time_one_failure_opens_it_again(circuits: CircuitStore) -> None:
    await circuits.move("provider", "opened", 0.0)
    assert await Process(circuits).call(fails=True) == "failed"
    assert await Process(circuits).call(fails=True) == "refused"


async def test_after_its_time_one_answer_closes_it_for_all(circuits: CircuitStore) -> None:
    await circuits.count_failure("provider")
    await circuits.move("provider", "opened", 0.0)
    assert await Process(circuits).call(fails=False) == "answered"
    assert await circuits.find("provider") == CircuitState()
    assert await Process(circuits).call(fails=True) == "failed"
    assert await Process(circuits).call(fails=True) == "failed"


class AwayStore:
    """An engine that is away."""

    def __getattr__(self, name: str) -> Any:
        async def away(*_arguments: object) -> CircuitState:
            raise UnavailableError

        return away


async def test_while_the_engine_is_away_a_process_goes_by_what_it_saw_itself() -> None:
    process = Process(AwayStore())
    calls = [await process.call(fails=True) for _ in range(4)]
    assert calls == ["failed", "failed", "failed", "refused"]
