"""Moves between engines inside the tests, and looks at both sides."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa

from sandyard.bootstrap.registry import get_spec
from sandyard.broker.wiring.pool import opened_pool
from sandyard.entrypoints.move.service import MoveOptions, move, move_back
from sandyard.kit.changes.transitions import json_value
from sandyard.kit.store_states import Phase, in_any_state
from sandyard.settings import Settings
from sandyard.wiring.stores import Store, on_engine
from tests.support.storage.filled_stores import (
    WEBHOOK,
    fill_broker,
    fill_platform,
    fill_previews,
    fill_telemetry,
)

PARTS = ("broker", "telemetry")
ON_SQL_ALONE = ("platform", "previews")
_NOT_MOVED = ("jobs", "circuits", "sink_streams")


class CrashError(BaseException):
    """Stands for the end of the process."""


@dataclass
class Mover:
    """Moves parts between engines, of which each has one place."""

    settings: Settings
    data_dir: Path
    crash: Callable[[int], None] = lambda _step: None
    """Called with the number of each step."""
    lines: list[str] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    steps: int = 0

    def store(self, part: str, engine: str) -> Store:
        return Store(on_engine(self.settings, engine), self.data_dir, part, engine)

    async def prepare(self, **sizes: int) -> None:
        """The tables on DynamoDB, and the parts filled on SQLite."""
        for part in PARTS:
            open_tables = get_spec(part).tables
            assert open_tables is not None
            with in_any_state():
                tables = open_tables(self.settings)
            await tables.create(lambda definition: definition)
            await tables.close()
        await self.prepare_sqlite(**sizes)

    async def prepare_sqlite(
        self, *, sandboxes: int = 12, devices: int = 3, readings: int = 5
    ) -> None:
        for part in PARTS:
            async with self.store(part, "sqlite").sql() as database:
                await get_spec(part).migrations().upgrade(database)
        with in_any_state():
            here = on_engine(self.settings, "sqlite")
            await fill_broker(here, self.data_dir, sandboxes=sandboxes)
            await fill_telemetry(here, self.data_dir, devices=devices, readings=readings)

    async def prepare_sql_alone(self) -> None:
        for part, fill in zip(ON_SQL_ALONE, (fill_platform, fill_previews), strict=True):
            async with self.store(part, "sqlite").sql() as database:
                await get_spec(part).migrations().upgrade(database)
                await fill(database)

    async def move(
        self,
        source: str,
        target: str,
        *,
        parts: Sequence[str] = PARTS,
        back: bool = False,
        replaces: bool = True,
    ) -> None:
        self.steps = 0
        options = MoveOptions(self._counting, self._report, replaces=replaces, wait=self._wait)
        pairs = [(self.store(part, source), self.store(part, target)) for part in parts]
        with in_any_state():
            if back:
                await move_back(pairs, options)
            else:
                await move(pairs, self.store("broker", source), options)

    def _step(self) -> None:
        self.steps += 1
        self.crash(self.steps)

    def _report(self, line: str) -> None:
        self.lines.append(line)
        self._step()

    async def _wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self._step()

    @contextmanager
    def _counting(self, _what: str, _total: int | None) -> Iterator[Callable[[int], None]]:
        """The first batch of a copy or check is a step."""
        batches = 0

        def progress(_done: int) -> None:
            nonlocal batches
            batches += 1
            if batches == 1:
                self._step()

        yield progress

    async def phase(self, part: str, engine: str) -> Phase:
        async with self.store(part, engine).states() as states:
            state = await states.read()
            return Phase.OPEN if state is None else state.phase

    async def open_engines(self, part: str, *engines: str) -> list[str]:
        """Those that have the part's data and may be used."""
        found = []
        for engine in engines:
            async with self.store(part, engine).states() as states:
                is_open = await self.phase(part, engine) is Phase.OPEN
                if is_open and not await states.is_empty():
                    found.append(engine)
        return found

    async def contents(self, engine: str, part: str) -> Counter[Any]:
        """All records of the part, as its stores return them; of one on SQL alone, its rows."""
        open_contents = get_spec(part).contents
        found: Counter[Any] = Counter()
        if open_contents is None:
            return await self.rows(engine, part)
        with in_any_state():
            async with open_contents(on_engine(self.settings, engine), self.data_dir) as all_of:
                for collection in all_of:
                    async for batch in collection.read():
                        found.update(f"{collection.name} {_text(each)}" for each in batch)
        return found

    async def rows(self, engine: str, part: str) -> Counter[str]:
        """All rows of the part's tables, without what an engine fills in."""
        async with self.store(part, engine).sql() as database:
            return await database.read(
                partial(_rows, metadata=get_spec(part).migrations().metadata)
            )

    async def undelivered(self, engine: str) -> set[str]:
        """The events of the Broker that the webhook has not got."""
        with in_any_state():
            async with opened_pool(on_engine(self.settings, engine), self.data_dir) as pool:
                stream = await pool.deliveries.find_stream(WEBHOOK, "broker")
                assert stream is not None
                assert stream.position is not None
                first = await pool.store.events.first_id_after(stream.position)
                return {
                    each.event_id
                    async for events in pool.store.events.everything()
                    for each in events
                    if first is not None and each.event_id >= first
                }


def _rows(connection: sa.Connection, *, metadata: sa.MetaData) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for table in metadata.sorted_tables:
        there = {
            each["name"] for each in sa.inspect(connection).get_columns(table.name, table.schema)
        }
        columns = [each for each in table.c if each.name in there - {"xid"}]
        if table.name not in _NOT_MOVED:
            rows = connection.execute(sa.select(*columns))
            found.update(f"{table.name} {tuple(map(_sorted, row))}" for row in rows)
    return found


def _sorted(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("{"):
        value = orjson.loads(value)
    return _text(value) if isinstance(value, dict | list) else value


def _text(record: Any) -> str:
    return orjson.dumps(json_value(record), option=orjson.OPT_SORT_KEYS).decode()
