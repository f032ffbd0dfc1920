"""Leases on every engine, and runners that share them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandyard.kit.jobs import JobRunner
from tests.integration.jobs.leases import (
    LEASE_SEC,
    Leases,
    MakeRunner,
    Work,
    dynamo_leases,
    memory_leases,
    sql_leases,
)
from tests.support.clocks import ManualClock
from tests.support.storage.engines import STORE_ENGINES, broker_database, pool_table


@pytest.fixture(params=[*STORE_ENGINES, "memory"])
async def leases(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[Leases]:
    if request.param == "memory":
        yield memory_leases()
        return
    if request.param == "dynamodb":
        async with pool_table(dynamo_url) as pool:
            yield dynamo_leases(pool)
        return
    async with broker_database(request.param, tmp_path, postgres_url) as database:
        yield sql_leases(database)


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
async def make_runner(leases: Leases, clock: ManualClock) -> AsyncIterator[MakeRunner]:
    """Runners as so many processes would have them; whatever still runs is stopped at the end."""
    runners: list[JobRunner] = []

    def make(holder: str, **changes: Any) -> JobRunner:
        runner = JobRunner(
            changes.get("leases", leases),
            clock=changes.get("clock", clock),
            holder=holder,
            lease_sec=changes.get("lease_sec", LEASE_SEC),
        )
        runners.append(runner)
        return runner

    yield make
    for runner in runners:
        await runner.stop()
