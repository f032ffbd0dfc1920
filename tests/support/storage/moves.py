"""Moves between engines inside the tests, and looks at both sides."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from sandyard.bootstrap.registry import get_spec
from sandyard.broker.wiring.pool import opened_pool
from sandyard.entrypoints.move.service import MoveOptions, move, move_back
from sandyard.kit.changes.transitions import json_value
from sandyard.kit.store_states import Phase, in_any_state
from sandyard.settings import Settings
from sandyard.wiring.stores import Store, on_engine
from tests.support.storage.filled_stores import WEBHOOK, fill_broker, fill_telemetry

PARTS = ("broker", "telemetry")


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

    async def prepare(self) -> None:
        """The tables on DynamoDB, and the parts filled on SQLite."""
        for part in PARTS:
            open_tables = get_spec(part).tables
            assert open_tables is not None
            with in_any_state():
                tables = open_tables(self.settings)
            await tables.create(lambda definition: definition)
            await tables.close()
        await self.prepare_sqlite()

    async def prepare_sqlite(self) -> None:
        for part in PARTS:
            async with self.store(part, "sqlite").sql() as database:
                await get_spec(part).migrations().upgrade(database)
        with in_any_state():
            await fill_broker(on_engine(self.settings, "sqlite"), self.data_dir)
            await fill_telemetry(on_engine(self.settings, "sqlite"), self.data_dir)

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
        """All records of the part, as its stores return them."""
        open_contents = get_spec(part).contents
        assert open_contents is not None
        found: Counter[Any] = Counter()
        with in_any_state():
            async with open_contents(on_engine(self.settings, engine), self.data_dir) as all_of:
                for collection in all_of:
                    async for batch in collection.read():
                        found.update(f"{collection.name} {_text(each)}" for each in batch)
        return found

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


def _text(record: Any) -> str:
    return orjson.dumps(json_value(record), option=orjson.OPT_SORT_KEYS).decode()
