"""What every EventLog promises, on every engine."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from aiodynamo.credentials import Key, StaticCredentials

from sandyard.broker.stores.tables import events, sandboxes
from sandyard.kit.changes.events import (
    Effect,
    EventLog,
    EventQuery,
    LoggedEvent,
    fold,
    prune_events,
)
from sandyard.kit.dynamo.client import Dynamo
from sandyard.kit.dynamo.event_items import EventItems, event_table_definition
from sandyard.kit.dynamo.tables import create_table
from sandyard.kit.paging import InvalidCursorError
from sandyard.kit.sql.database import PostgresDatabase
from sandyard.kit.sql.events import EventWriter, SqlEventLog
from tests.support.clocks import ManualClock
from tests.support.storage.engines import STORE_ENGINES, broker_database
from tests.support.storage.event_logs import (
    DAY_MS,
    FIRST_DAY_MS,
    Bench,
    bench_on_dynamo,
    bench_on_sql,
    event,
)


@pytest.fixture(params=STORE_ENGINES)
async def bench(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[Bench]:
    clock = ManualClock((FIRST_DAY_MS + 5 * DAY_MS) / 1000)
    if request.param != "dynamodb":
        async with broker_database(request.param, tmp_path, postgres_url) as database:
            yield bench_on_sql(database, clock)
        return
    engine = Dynamo(
        region="us-east-1",
        endpoint_url=dynamo_url,
        credentials=StaticCredentials(Key("local", "local")),
    )
    name = f"Events-{uuid4().hex[:12]}"
    await create_table(engine, event_table_definition(name), ttl=None)
    writer_clock = ManualClock(0)
    yield bench_on_dynamo(EventItems(engine, name, writer_clock), clock, writer_clock)
    await engine.close()


async def all_pages(log: EventLog, query: EventQuery, *, limit: int = 3) -> list[LoggedEvent]:
    found: list[LoggedEvent] = []
    cursor = None
    while True:
        page = await log.page(query, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


async def exported(log: EventLog, from_ms: int, to_ms: int) -> list[LoggedEvent]:
    return [each async for batch in log.between(from_ms=from_ms, to_ms=to_ms) for each in batch]


def numbers(found: list[LoggedEvent]) -> list[int]:
    return [int(each.event.data["size"]) for each in found]


async def fill(bench: Bench) -> None:
    """Twelve events of three subjects, three actors and two kinds, half a day apart."""
    await bench.write(
        [
            event(
                f"s{number % 3}",
                number,
                kind="thing.made" if number < 3 else "thing.changed",
                actor=f"track:{number % 2}",
                at_ms=FIRST_DAY_MS + number * DAY_MS // 2,
                effect=Effect.FULL if number < 3 else Effect.PARTIAL,
            )
            for number in range(12)
        ]
    )


class TestCounts:
    @pytest.mark.parametrize(
        ("kind", "half_days", "expected"),
        [
            ("thing.made", (0, 12), 3),
            ("thing.made", (1, 2), 1),
            ("thing.changed", (0, 4), 1),
            ("thing.changed", (3, 12), 9),
            ("thing.lost", (0, 12), 0),
        ],
    )
    async def test_are_of_one_kind_and_time(
        self, bench: Bench, kind: str, half_days: tuple[int, int], expected: int
    ) -> None:
        await fill(bench)
        first, end = (FIRST_DAY_MS + each * DAY_MS // 2 for each in half_days)
        assert await bench.log.count(kind, from_ms=first, to_ms=end) == expected


class TestPages:
    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            (EventQuery(), [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
            (EventQuery(subject="s1"), [10, 7, 4, 1]),
            (EventQuery(kind="thing.made"), [2, 1, 0]),
            (EventQuery(kind="thing.m*"), [2, 1, 0]),
            (EventQuery(kind="thing.*"), [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
            (EventQuery(kind="thin.*"), []),
            (EventQuery(subject="s1", kind="thing.*"), [10, 7, 4, 1]),
            (EventQuery(actor="track:0", kind="thing.m*"), [2, 0]),
            (EventQuery(actor="track:1"), [11, 9, 7, 5, 3, 1]),
            (EventQuery(subject="s1", actor="track:1"), [7, 1]),
            (EventQuery(subject="s1", kind="thing.made"), [1]),
            (EventQuery(actor="track:0", kind="thing.made"), [2, 0]),
            (EventQuery(from_ms=FIRST_DAY_MS + 5 * DAY_MS // 2), [11, 10, 9, 8, 7, 6, 5]),
            (EventQuery(to_ms=FIRST_DAY_MS + 5 * DAY_MS // 2), [4, 3, 2, 1, 0]),
            (
                EventQuery(
                    from_ms=FIRST_DAY_MS + DAY_MS,
                    to_ms=FIRST_DAY_MS + 2 * DAY_MS,
                    kind="thing.made",
                ),
                [2],
            ),
            (
                EventQuery(subject="s0", from_ms=FIRST_DAY_MS + 1, to_ms=FIRST_DAY_MS + 4 * DAY_MS),
                [6, 3],
            ),
            (
                EventQuery(
                    actor="track:0", from_ms=FIRST_DAY_MS + 1, to_ms=FIRST_DAY_MS + 3 * DAY_MS
                ),
                [4, 2],
            ),
            (EventQuery(subject="nobody"), []),
            (EventQuery(actor="nobody"), []),
            (EventQuery(kind="nothing"), []),
        ],
    )
    async def test_have_what_is_asked_for_the_newest_first(
        self, bench: Bench, query: EventQuery, expected: list[int]
    ) -> None:
        bench.clock.advance(1 + 24 * 3600)
        await fill(bench)
        assert numbers(await all_pages(bench.log, query)) == expected
        assert numbers(await all_pages(bench.log, query, limit=100)) == expected

    async def test_tell_all_of_an_event(self, bench: Bench) -> None:
        sent = event("s1", 7, kind="thing.made", effect=Effect.FULL)
        await bench.write([sent])
        [logged] = (await bench.log.page(EventQuery(), limit=1, cursor=None)).items
        assert logged.event == sent
        assert logged.part == "broker"
        assert len(logged.event_id) == 26

    async def test_a_subject_s_events_are_in_order_whatever_the_clocks_said(
        self, bench: Bench
    ) -> None:
        times = [FIRST_DAY_MS + each for each in (50, 20, 90, 10, 40)]
        for number, at_ms in enumerate(times):
            await bench.write([event("s1", number, at_ms=at_ms)])
        query = EventQuery(subject="s1")
        assert numbers(await all_pages(bench.log, query, limit=2)) == [4, 3, 2, 1, 0]

    async def test_of_the_same_instant_go_on_at_the_right_one(self, bench: Bench) -> None:
        await bench.write([event(f"s{n}", n) for n in range(20)])
        for query in (EventQuery(), EventQuery(actor="operator")):
            found = await all_pages(bench.log, query, limit=7)
            assert sorted(numbers(found)) == list(range(20))
            ids = [each.event_id for each in found]
            assert ids == sorted(ids, reverse=True)

    async def test_refuse_a_cursor_of_another_query(self, bench: Bench) -> None:
        await fill(bench)
        queries = [EventQuery(), EventQuery(subject="s1"), EventQuery(actor="track:1")]
        for query in queries:
            page = await bench.log.page(query, limit=1, cursor=None)
            assert page.next_cursor is not None
            for other in queries:
                if other != query:
                    with pytest.raises(InvalidCursorError):
                        await bench.log.page(other, limit=1, cursor=page.next_cursor)


class TestReaders:
    async def test_an_export_has_every_event_of_its_time_once_the_oldest_first(
        self, bench: Bench
    ) -> None:
        await fill(bench)
        found = await exported(bench.log, FIRST_DAY_MS + DAY_MS // 2, FIRST_DAY_MS + 5 * DAY_MS)
        assert numbers(found) == list(range(1, 10))

    async def test_what_was_decided_long_before_it_is_written_is_not_behind_those_who_have_read(
        self, bench: Bench
    ) -> None:
        """As by a job that took its time from the clock once and then ran for an hour."""
        await fill(bench)
        bench.clock.advance(10 * 24 * 3600)
        now_ms = int(bench.clock.now() * 1000)
        position: str | None = None
        seen, position = await bench.log.read_after(position, limit=100)
        assert len(await exported(bench.log, FIRST_DAY_MS, now_ms)) == len(seen) == 12
        bench.writer_clock.advance(bench.clock.now())
        late = event("late", 99, at_ms=now_ms - 3600_000)
        await bench.write([late])
        bench.clock.advance(120)
        found, _ = await bench.log.read_after(position, limit=100)
        assert [each.event for each in found] == [late]
        assert [each.event for each in await exported(bench.log, now_ms, now_ms + 1)] == [late]

    async def test_state_events_begin_with_the_last_full_state(self, bench: Bench) -> None:
        await bench.write([event("s1", 1, effect=Effect.FULL), event("s1", 2)])
        await bench.write([event("s1", 3, effect=Effect.FULL), event("s1", 4), event("s2", 1)])
        found = await bench.log.state_events(["s1", "s2", "s3"])
        assert {each: [e.sequence for e in found[each]] for each in found} == {
            "s1": [3, 4],
            "s2": [1],
        }
        assert fold(found["s1"]) == {"size": 4, "name": "s1"}

    async def test_a_check_gets_every_subject_that_is_gone_once(self, bench: Bench) -> None:
        many = [f"s{n}" for n in range(1200)]
        await bench.write([event(each, n) for each in many for n in (1, 2)])
        await bench.set_alive({"s1", "s700", "new"})
        found = [each async for batch in bench.log.gone() for each in batch]
        assert sorted(found) == sorted({*many} - {"s1", "s700"})

    async def test_a_reader_gets_every_event_once_and_a_subject_s_in_order(
        self, bench: Bench
    ) -> None:
        await fill(bench)
        bench.clock.advance(10 * 24 * 3600)
        seen: list[LoggedEvent] = []
        position: str | None = None
        while True:
            batch, position = await bench.log.read_after(position, limit=5)
            if not batch:
                break
            seen += batch
        assert sorted(numbers(seen)) == list(range(12))
        for subject in ("s0", "s1", "s2"):
            own = [
                n
                for n, each in zip(numbers(seen), seen, strict=True)
                if each.event.subject == subject
            ]
            assert own == sorted(own)
        assert await bench.log.read_after(position, limit=5) == ([], position)

    async def test_a_reader_may_begin_at_a_time_and_misses_nothing_from_then_on(
        self, bench: Bench
    ) -> None:
        await fill(bench)
        bench.clock.advance(10 * 24 * 3600)
        position = await bench.log.position_before(FIRST_DAY_MS + DAY_MS)
        found, _ = await bench.log.read_after(position, limit=100)
        everything, _ = await bench.log.read_after(None, limit=100)
        assert [each for each in found if _is_later(each)] == list(filter(_is_later, everything))
        assert 0 < len(found) < len(everything)


def _is_later(logged: LoggedEvent) -> bool:
    return logged.event.at_ms >= FIRST_DAY_MS + DAY_MS


class TestPruning:
    async def prune(self, bench: Bench, *, days: float = 4) -> int:
        """Away with what is older than day 4, as the job does it."""
        bench.clock.advance((FIRST_DAY_MS + 2 * days * DAY_MS) / 1000 - bench.clock.now())
        report = await prune_events(bench.log, clock=bench.clock, retention=timedelta(days=days))
        return report.events_removed

    async def test_keeps_what_a_live_subject_s_state_rests_on(self, bench: Bench) -> None:
        old = [event("live", 1, effect=Effect.FULL), event("live", 2), event("gone", 1)]
        newer = [event("live", 3, effect=Effect.FULL), event("live", 4)]
        last = [event("live", 5, at_ms=FIRST_DAY_MS + 6 * DAY_MS)]
        late = [event("gone", 2, at_ms=FIRST_DAY_MS + 6 * DAY_MS)]
        await bench.write([*old, *newer, *last, *late])
        await bench.set_alive({"live"})
        assert await self.prune(bench) == 3
        assert await self.prune(bench) == 0
        history = await all_pages(bench.log, EventQuery(subject="live"))
        assert [each.event.sequence for each in history] == [5, 4, 3]
        assert fold((await bench.log.state_events(["live"]))["live"]) == {"size": 5, "name": "live"}
        gone = await all_pages(bench.log, EventQuery(subject="gone"))
        assert [each.event.sequence for each in gone] == [2]

    async def test_removes_what_was_kept_once_its_subject_is_gone(self, bench: Bench) -> None:
        await bench.write([event("s1", 1, effect=Effect.FULL), event("s1", 2)])
        await bench.set_alive({"s1"})
        assert await self.prune(bench) == 0
        await bench.set_alive(set())
        assert await self.prune(bench, days=40) == 2
        assert await all_pages(bench.log, EventQuery(subject="s1")) == []

    async def test_goes_through_thousands(self, bench: Bench) -> None:
        await bench.write([event(f"s{n}", 1, effect=Effect.FULL) for n in range(2100)])
        await bench.set_alive({"s7"})
        assert await self.prune(bench) == 2099
        assert len(await all_pages(bench.log, EventQuery(), limit=100)) <= 1


async def test_a_transaction_that_commits_late_is_not_skipped(
    tmp_path: Path, postgres_url: str
) -> None:
    """It began before another that a reader has already seen, and commits after that."""
    async with broker_database("postgresql", tmp_path, postgres_url) as database:
        assert isinstance(database, PostgresDatabase)
        log = SqlEventLog(database, events, part="broker", subjects=[sandboxes.c.sandbox_id])
        writer = EventWriter(events)
        async with database._engine.connect() as early:
            await early.run_sync(lambda c: writer.write(c, [event("early", 1)]))
            await database.write(lambda c: writer.write(c, [event("late", 1)]))
            position: str | None = None
            seen: list[str] = []

            async def read() -> None:
                nonlocal position
                batch, position = await log.read_after(position, limit=10)
                seen.extend(each.event.subject for each in batch)

            await read()
            assert seen == [], "what began later may be read only when nothing earlier is open"
            await early.commit()
            await read()
            assert sorted(seen) == ["early", "late"]
            await database.write(lambda c: writer.write(c, [event("last", 1)]))
            for _ in range(50):
                await read()
                if "last" in seen:
                    break
                await asyncio.sleep(0.1)  # others' transactions on this server may be open
            assert sorted(seen) == ["early", "last", "late"]
