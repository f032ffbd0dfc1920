"""The schedule keeps its jobs running, and asks for one no more often than it must."""

import asyncio
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandyard.entrypoints.server.schedule import Schedule
from sandyard.kit.clock import SystemClock
from sandyard.kit.jobs import Job, JobRunner
from sandyard.kit.observability.log import JsonFormatter
from sandyard.kit.sql.database import Database, open_database
from sandyard.kit.sql.job_leases import SqlJobLeases
from sandyard.telemetry.stores.sql import MIGRATIONS
from sandyard.telemetry.stores.tables import jobs


class CountedLeases(SqlJobLeases):
    def __init__(self, database: Database) -> None:
        super().__init__(database, jobs)
        self.asked = 0

    async def acquire(self, *arguments: Any, **named: Any) -> bool:
        self.asked += 1
        return await super().acquire(*arguments, **named)


@dataclass(frozen=True)
class Report:
    runs: int


@dataclass(frozen=True)
class Creations:
    created: int
    """As an attribute of every `LogRecord` is called."""


async def test_a_job_goes_on_and_is_logged_whatever_its_counts_are_called(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = open_database(None, data_dir=tmp_path, part="telemetry", pool_size=1)
    await MIGRATIONS.upgrade(database)
    clock = SystemClock()
    caplog.handler.setFormatter(JsonFormatter())
    caplog.set_level(logging.INFO)
    ran = asyncio.Semaphore(0)

    async def run() -> Creations:
        ran.release()
        return Creations(3)

    runner = JobRunner(SqlJobLeases(database, jobs), clock=clock, holder="first")
    schedule = Schedule([(runner, Job("pool", 1, run, at_start=True))])
    schedule.start()
    async with asyncio.timeout(60):
        for _ in range(2):
            await ran.acquire()
    await schedule.stop()
    await database.close()
    [line, *_] = map(json.loads, caplog.text.splitlines())
    assert (line["message"], line["action"], line["created"]) == ("job finished", "pool", 3)


async def test_a_frequent_job_that_did_nothing_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = open_database(None, data_dir=tmp_path, part="telemetry", pool_size=1)
    await MIGRATIONS.upgrade(database)
    caplog.handler.setFormatter(JsonFormatter())
    caplog.set_level(logging.INFO)
    reports = [Report(0), Report(7), Report(0)]
    has_ended = asyncio.Event()

    async def run() -> Report:
        if len(reports) == 1:
            has_ended.set()
        return reports.pop(0) if len(reports) > 1 else reports[0]

    runner = JobRunner(SqlJobLeases(database, jobs), clock=SystemClock(), holder="first")
    schedule = Schedule([(runner, Job("reservations", 1, run, at_start=True))])
    schedule.start()
    async with asyncio.timeout(60):
        await has_ended.wait()
    await schedule.stop()
    await database.close()
    assert [json.loads(line)["runs"] for line in caplog.text.splitlines()] == [7]


async def test_who_has_run_a_job_does_not_ask_for_it_before_it_is_due(tmp_path: Path) -> None:
    database = open_database(None, data_dir=tmp_path, part="telemetry", pool_size=1)
    await MIGRATIONS.upgrade(database)
    leases, clock = CountedLeases(database), SystemClock()
    ran: list[float] = []
    again = asyncio.Event()

    async def run() -> Report:
        ran.append(clock.now())
        if len(ran) == 2:
            again.set()
        return Report(len(ran))

    runner = JobRunner(leases, clock=clock, holder="first")
    schedule = Schedule([(runner, Job("count", 2, run, at_start=True))])
    schedule.start()
    async with asyncio.timeout(60):
        await again.wait()
    assert leases.asked == 2, "others ask every second, in case that it died"
    # Two seconds from one request for it to the next; each run begins a moment after its request.
    assert ran[1] - ran[0] > 1.5
    await schedule.stop()
    await database.close()
