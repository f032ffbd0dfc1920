"""Previews on SQLite or PostgreSQL."""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.concurrency.batching import BatchedLookup, Batcher
from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql.column_types import UtcTime
from sandyard.kit.sql.database import Database, Work
from sandyard.kit.sql.events import EventWriter
from sandyard.kit.sql.transitions import FactReader, SqlTransitions, StaleTransitionError
from sandyard.previews.files import FileChanges, PublicationChange
from sandyard.previews.model import FileQuota, Preview, RunningPreviews
from sandyard.previews.ports import PageKey
from sandyard.previews.stores import tables
from sandyard.previews.stores.sql_files import (
    has_files,
    remove_files,
    stored_bytes,
    write_files,
)
from sandyard.previews.stores.sql_published import SqlPublished, write_publication
from sandyard.previews.stores.tables import previews

_preview = previews.c
_at = sa.bindparam("at", type_=UtcTime)
_touch = (
    previews.update()
    .where(
        _preview.project_id == sa.bindparam("of_project"),
        _preview.sequence == sa.bindparam("seen"),
        sa.or_(_preview.last_checked.is_(None), _preview.last_checked < _at),
    )
    .values(last_checked=_at)
)

T = TypeVar("T")
_Check = dict[str, Any]
"""When the provider last reported a preview: the parameters of `_touch`."""
_MOST_CHECKS = 200


class SqlPreviewStore(SqlPublished):
    def __init__(
        self,
        database: Database,
        *,
        reads: tables.Reads = "new",
        columns_sec: float = tables.COLUMNS_SEC,
    ) -> None:
        """`columns_sec` is how long the old columns are believed to be missing."""
        super().__init__(database)
        self._reads = reads
        self._events = EventWriter(tables.events)
        self._columns: _Columns | None = None
        self._columns_sec, self._columns_at = columns_sec, 0.0
        self._lookup: BatchedLookup[str, Preview] = BatchedLookup(self._find_by_id)
        self._checks: Batcher[_Check, None] = Batcher(
            self._write_checks, key=itemgetter("of_project"), parallel=1, max_size=_MOST_CHECKS
        )

    async def find(self, project_id: str) -> Preview | None:
        return await self._lookup.find(project_id)

    async def _find_by_id(self, project_ids: Sequence[str]) -> Mapping[str, Preview]:
        return {each.project_id: each for each in await self.find_all(project_ids)}

    async def find_all(self, project_ids: Collection[str]) -> Sequence[Preview]:
        wanted = {"of_projects": list(project_ids)}
        return await self._read(lambda columns: columns.find, wanted)

    async def _read(
        self, statement_of: Callable[["_Columns"], sa.Select[Any]], values: Mapping[str, Any] = {}
    ) -> Sequence[Preview]:
        def work(connection: sa.Connection, columns: _Columns) -> Sequence[Preview]:
            rows = connection.execute(statement_of(columns), values)
            return [columns.table.preview(row) for row in rows]

        return await self._with_columns(self._database.read, work)

    async def erase_deleted(self) -> None:
        await self._database.erase_deleted()

    async def page(self, *, after: str, limit: int) -> Sequence[Preview]:
        is_next, key = _preview.project_id > after, _preview.project_id
        return await self._read(lambda it: it.select.where(is_next).order_by(key).limit(limit))

    async def page_of_running(
        self, at: datetime, *, after: PageKey | None, limit: int
    ) -> tuple[Sequence[Preview], PageKey | None]:
        def work(
            connection: sa.Connection, columns: _Columns
        ) -> tuple[Sequence[Preview], PageKey | None]:
            rows = connection.execute(running_page(columns.select, at, after, limit)).all()
            page_key = (rows[-1].running_until, rows[-1].project_id) if len(rows) == limit else None
            return [columns.table.preview(row) for row in rows], page_key

        return await self._with_columns(self._database.read, work)

    async def running(self, account_id: str, *, at: datetime) -> RunningPreviews:
        return await self._database.read(lambda c: _read_running(c, account_id, at))

    async def count_running(self, *, at: datetime) -> int:
        statement = sa.select(sa.func.count()).where(_preview.running_until > at)
        return await self._database.read(lambda c: c.execute(statement).scalar_one())

    async def read_file_quota(self, about: FileQuota) -> FileQuota:
        return await self._database.read(lambda c: _read_file_quota(c, about))

    async def file_bytes(self, account_id: str) -> int:
        return await self._database.read(lambda c: stored_bytes(c, account_id, besides=None))

    async def with_files(self, account_id: str) -> Sequence[Preview]:
        is_own = _preview.account_id == account_id
        return await self._read(lambda columns: columns.select.where(is_own, has_files()))

    async def apply(
        self,
        transition: Transition[Preview],
        *,
        files: FileChanges | None = None,
        publication: PublicationChange | None = None,
    ) -> bool:
        def work(connection: sa.Connection, columns: _Columns) -> None:
            if transition.before is not None and transition.after is None:
                _remove_files(connection, transition.before)
            columns.transitions.write(connection, [transition])
            if files is not None:
                write_files(connection, transition, files)
            if publication is not None:
                write_publication(connection, transition.result.project_id, publication)

        try:
            await self._with_columns(self._database.write, work)
        except StaleTransitionError:
            return False
        except IntegrityError:
            if transition.before is not None and publication is None:
                raise
            return False  # another caller created it first, or has the domain
        return True

    async def touch(self, preview: Preview, *, last_checked: datetime) -> None:
        await self._checks.submit(
            {"of_project": preview.project_id, "seen": preview.sequence, "at": last_checked}
        )

    async def _write_checks(self, checks: Sequence[_Check]) -> Sequence[None]:
        """Those of concurrent callers together, in the order in which all writers lock."""
        values = sorted(checks, key=itemgetter("of_project"))
        await self._database.write(lambda connection: connection.execute(_touch, values))
        return [None] * len(checks)

    async def known_attempts(self, attempts: Sequence[str], *, now: datetime) -> set[str]:
        def work(connection: sa.Connection) -> set[str]:
            under_way = sa.select(_preview.attempt).where(_preview.attempt.in_(attempts))
            made_by = _made_by(connection)
            runs = sa.select(made_by).where(_preview.running_until > now, made_by.in_(attempts))
            return {attempt for (attempt,) in connection.execute(under_way.union(runs))}

        return await self._database.read(work)

    async def _with_columns(
        self,
        run: Callable[[Work[T]], Awaitable[T]],
        work: Callable[[sa.Connection, "_Columns"], T],
    ) -> T:
        """Retry with the current columns, if the migration changed them meanwhile."""
        columns = self._columns
        if columns is None or self._may_be_back(columns):
            columns = await self._look_up_columns()
        try:
            return await run(lambda connection: work(connection, columns))
        except UnavailableError:
            current = await self._look_up_columns()
            if current.table.has_old == columns.table.has_old:
                raise
            return await run(lambda connection: work(connection, current))

    def _may_be_back(self, columns: "_Columns") -> bool:
        is_recent = time.monotonic() - self._columns_at < self._columns_sec
        return not columns.table.has_old and not is_recent

    async def _look_up_columns(self) -> "_Columns":
        self._columns_at = time.monotonic()
        has_old = await self._database.read(tables.has_old_columns)
        table = tables.PreviewTable(has_old=has_old, reads=self._reads)
        transitions = SqlTransitions(self._database, [table], self._events, facts=_FACTS)
        self._columns = _Columns(table, transitions)
        return self._columns


class _Columns:
    """What depends on the existence of the old columns.

    The most frequent statement is built once, because building takes longer than running it.
    """

    def __init__(self, table: tables.PreviewTable, transitions: SqlTransitions) -> None:
        self.table = table
        self.transitions = transitions
        self.select = sa.select(
            *(
                column
                for column in _preview
                if table.has_old or column.name not in tables.OLD_COLUMNS
            )
        )
        self.find = self.select.where(
            _preview.project_id.in_(sa.bindparam("of_projects", expanding=True))
        )


def running_page(
    select: sa.Select[Any], at: datetime, after: PageKey | None, limit: int
) -> sa.Select[Any]:
    """In the order of an index, so that only running previews are read."""
    page = select.where(_preview.running_until > at)
    if after is not None:
        last_until, last_id = after
        page = page.where(
            # Redundant, but gives the planner a range; the second condition does not.
            _preview.running_until >= last_until,
            sa.or_(_preview.running_until > last_until, _preview.project_id > last_id),
        )
    return page.order_by(_preview.running_until, _preview.project_id).limit(limit)


def _read_running(connection: sa.Connection, account_id: str, at: datetime) -> RunningPreviews:
    statement = sa.select(_preview.project_id).where(
        _preview.account_id == account_id, _preview.running_until > at
    )
    return RunningPreviews(account_id, at, frozenset(connection.execute(statement).scalars()))


def _read_again(connection: sa.Connection, fact: RunningPreviews) -> RunningPreviews:
    return _read_running(connection, fact.account_id, fact.at)


def _read_file_quota(connection: sa.Connection, about: FileQuota) -> FileQuota:
    return about.beside(stored_bytes(connection, about.account_id, besides=about.project_id))


_FACTS: Mapping[type, FactReader] = {
    RunningPreviews: FactReader(
        lock=lambda fact: f"sandyard previews {fact.account_id}", read=_read_again
    ),
    FileQuota: FactReader(
        lock=lambda fact: f"sandyard files {fact.account_id}", read=_read_file_quota
    ),
}


def _remove_files(connection: sa.Connection, before: Preview) -> None:
    """Locks the row first, as writers of files do."""
    as_seen = sa.select(_preview.project_id).where(
        _preview.project_id == before.project_id, _preview.sequence == before.sequence
    )
    if connection.execute(as_seen.with_for_update()).first() is None:
        raise StaleTransitionError
    remove_files(connection, before.project_id)


def _made_by(connection: sa.Connection) -> sa.ColumnElement[str]:
    if connection.dialect.name == "sqlite":
        return sa.func.json_extract(_preview.sandbox_info, "$.attempt", type_=sa.String)
    return sa.cast(_preview.sandbox_info.op("->>")("attempt"), sa.String)
