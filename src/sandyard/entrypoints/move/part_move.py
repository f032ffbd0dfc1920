"""One part's move: its two stores, what each allows, and the copy between them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sandyard.entrypoints.move.digests import Digest
from sandyard.entrypoints.move.errors import MoveError
from sandyard.entrypoints.move.sql_copy import SqlCopy
from sandyard.kit.changes.transitions import json_value
from sandyard.kit.dynamo.client import DynamoPolicy
from sandyard.kit.sql.store_states import SqlStoreStates
from sandyard.kit.store_states import RIGHT_SEC, Phase, StoreState, StoreStates
from sandyard.wiring.contents import Collection
from sandyard.wiring.spec import Counting, PartSpec, Tables
from sandyard.wiring.stores import Store

_MARGIN_SEC = 1.0


@dataclass(slots=True)
class PartMove:
    spec: PartSpec
    source: Store
    target: Store
    sources: StoreStates
    targets: StoreStates
    here: StoreState | None = None
    """The source's state, as last read or written."""
    there: StoreState | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def wait_sec(self) -> float:
        """How long after a withdrawal a process may still write. PostgreSQL itself waits for
        transactions in progress."""
        match self.source.engine:
            case "sqlite":
                return 0
            case "postgresql":
                return RIGHT_SEC + _MARGIN_SEC
            case _:
                return RIGHT_SEC + DynamoPolicy().deadline_sec + _MARGIN_SEC

    async def look(self) -> None:
        self.here, self.there = await self.sources.read(), await self.targets.read()

    async def change_source(self, phase: Phase, move_id: str, now: int) -> None:
        after = StoreState(phase, move_id, self.target.description, now)
        await self.sources.change(self.here, after)
        self.here = after

    async def change_target(self, phase: Phase, move_id: str, now: int) -> None:
        after = StoreState(phase, move_id, self.source.description, now)
        await self.targets.change(self.there, after)
        self.there = after

    async def refuse_source_writes(self) -> None:
        if isinstance(self.sources, SqlStoreStates):
            await self.sources.refuse_writes()

    async def accept_writes(self, states: StoreStates) -> None:
        if isinstance(states, SqlStoreStates):
            await states.accept_writes()

    async def require_schemas(self) -> None:
        """The source has the newest schema; the target's tables are there, if it is DynamoDB."""
        if self.source.engine != "dynamodb":
            async with self.source.sql() as database:
                await self.spec.migrations().require_head(database)
        if self.target.engine == "dynamodb":
            async with self._target_tables() as tables:
                await tables.check()

    async def prepare_target(self) -> None:
        """Bring it to the newest schema and, if nothing was copied yet, remove what it has."""
        await self.accept_writes(self.targets)
        await self.upgrade_target()
        if not _known(self.there).done:
            await self.empty_target()

    async def upgrade_target(self) -> None:
        if self.target.engine != "dynamodb":
            async with self.target.sql() as database:
                await self.spec.migrations().upgrade(database)

    async def empty_target(self) -> None:
        if self.target.engine == "dynamodb":
            async with self._target_tables() as tables:
                await tables.empty()
        else:
            async with self.target.sql() as database:
                await SqlCopy(database, database, self.spec.migrations().metadata).empty()

    @asynccontextmanager
    async def _target_tables(self) -> AsyncIterator[Tables]:
        assert self.spec.tables is not None  # noqa: S101 - it supports DynamoDB
        tables = self.spec.tables(self.target.settings)
        try:
            yield tables
        finally:
            await tables.close()

    async def copy(self, counting: Counting) -> None:
        if self._is_alike:
            async with self._sql_copy() as copy:
                with counting(f"copy {self.name}", await copy.count()) as progress:
                    self.there = await copy.copy(_known(self.there), progress)
            return
        async with self._collections() as pairs:
            with counting(f"copy {self.name}", None) as progress:
                copied = 0
                for source, target in pairs:
                    if source.name in _known(self.there).done:
                        continue
                    async for batch in source.read():
                        await target.write(batch)
                        copied += len(batch)
                        progress(copied)
                    await target.finish()
                    await self.record_done(source.name, what=True)

    async def record_done(self, collection: str, what: Any) -> None:
        before = _known(self.there)
        self.there = replace(before, done={**before.done, collection: what})
        await self.targets.change(before, self.there)

    async def check(self, counting: Counting) -> str:
        """Compare both sides; returns a summary, or raises MoveError."""
        with counting(f"check {self.name}", None) as progress:
            if self._is_alike:
                async with self._sql_copy() as copy:
                    counts, problems = await copy.compare(progress)
            else:
                async with self._collections() as pairs:
                    counts, problems = await _compare(pairs)
        problems += await self._verify(counting)
        if problems:
            way_back = f"{self.target.engine} stays closed. To go back, use --back."
            raise MoveError("\n".join([f"{self.name} differs, and {way_back}", *problems]))
        return f"{self.name}: {sum(counts.values()):,} records, equal on both sides"

    async def _verify(self, counting: Counting) -> list[str]:
        """The problems that the target has and the source has not."""
        before, after = [
            await self.spec.verify(each.settings, _folder(each), counting)
            for each in (self.source, self.target)
        ]
        return [each for each in after.problems if each not in before.problems]

    @property
    def _is_alike(self) -> bool:
        return "dynamodb" not in (self.source.engine, self.target.engine)

    @asynccontextmanager
    async def _sql_copy(self) -> AsyncIterator[SqlCopy]:
        async with self.source.sql() as source, self.target.sql() as target:
            yield SqlCopy(source, target, self.spec.migrations().metadata)

    @asynccontextmanager
    async def _collections(self) -> AsyncIterator[Sequence[tuple[Collection, Collection]]]:
        assert self.spec.contents is not None  # noqa: S101 - it supports DynamoDB
        async with AsyncExitStack() as stack:
            source, target = [
                await stack.enter_async_context(self.spec.contents(each.settings, _folder(each)))
                for each in (self.source, self.target)
            ]
            yield list(zip(source, target, strict=True))


async def _compare(
    pairs: Sequence[tuple[Collection, Collection]],
) -> tuple[dict[str, int], list[str]]:
    counts: dict[str, int] = {}
    problems: list[str] = []
    for source, target in pairs:
        here, there = await _digest(source), await _digest(target)
        counts[source.name] = here.count
        if here != there:
            problems.append(f"{source.name}: {here.count} here, {there.count} there")
    return counts, problems


async def _digest(collection: Collection) -> Digest:
    digest = Digest()
    async for batch in collection.read():
        digest.add([type(each).__name__, json_value(each)] for each in batch)
    return digest


def _known(state: StoreState | None) -> StoreState:
    assert state is not None  # noqa: S101 - a store that is moved has a state
    return state


def _folder(store: Store) -> Path:
    return store.data_dir or Path()
