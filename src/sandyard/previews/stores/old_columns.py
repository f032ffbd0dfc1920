"""Migrates `sandbox_id` and `preview_url` to `sandbox_info`, and back without loss.

Three phases: the columns exist side by side, all are written, and the old ones are read where only
they are filled; `run` fills `sandbox_info` there, and `validate` compares; `finish` drops the old
ones. `rollback` restores the exact content of the old columns.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.events import EventWriter
from sandyard.kit.sql.transitions import SqlTransitions
from sandyard.previews.errors import MigrationRefusedError
from sandyard.previews.model import stored_anew
from sandyard.previews.stores import tables
from sandyard.previews.stores.tables import previews

_preview = previews.c
_PAGE = 500
_ROWS = tables.PreviewTable()

Progress = Callable[[int], None]


@dataclass(slots=True)
class MigrationReport:
    looked_at: int = 0
    changed: int = 0
    differences: list[str] = field(default_factory=list)
    """Project ids and what is wrong with them."""


class OldColumns:
    def __init__(
        self, database: Database, *, clock: Clock, noticed_sec: float = 2 * tables.COLUMNS_SEC
    ) -> None:
        """`noticed_sec`: until all servers have noticed that the old columns are back."""
        self._database = database
        self._clock = clock
        self._noticed_sec = noticed_sec
        self._transitions = SqlTransitions(database, [_ROWS], EventWriter(tables.events))

    async def count(self) -> int:
        statement = sa.select(sa.func.count()).select_from(previews)
        return await self._database.read(lambda c: int(c.execute(statement).scalar_one()))

    async def run(self, progress: Progress) -> MigrationReport:
        """Fill `sandbox_info` where only the old columns are filled. Running it again changes
        nothing."""
        await self._require_old()

        def fill(row: Any, _report: MigrationReport) -> dict[str, Any]:
            info = tables.migrated_info(row) if row.sandbox_info is None else None
            if info is None:
                return {}
            until = _ROWS.preview_with(row, {"sandbox_info": info}).running_until
            return {"sandbox_info": info, "running_until": until}

        return await self._each(fill, progress, kind="preview.migrated")

    async def validate(self, progress: Progress) -> MigrationReport:
        """Compare both, row by row; an empty string equals NULL."""
        await self._require_old()

        def compare(row: Any, report: MigrationReport) -> dict[str, Any]:
            info = row.sandbox_info or {}
            for column in tables.OLD_COLUMNS:
                if (info.get(column) or None) != (getattr(row, column) or None):
                    report.differences.append(f"{row.project_id}: {column} differs")
            return {}

        return await self._each(compare, progress, kind="")

    async def finish(self, progress: Progress) -> MigrationReport:
        """Drop the old columns, once both agree."""
        report = await self.validate(progress)
        if report.differences:
            raise MigrationRefusedError(
                f"There are {len(report.differences)} differences; `validate` lists them. `run` "
                "fills what is missing; where both are filled and the old ones are right, set "
                "`sandbox_info` to NULL and run it again."
            )

        def drop(connection: sa.Connection) -> None:
            for column in tables.OLD_COLUMNS:
                connection.execute(
                    sa.text(f"ALTER TABLE {tables.SCHEMA}.previews DROP COLUMN {column}")
                )

        await self._database.write(drop)
        return report

    async def rollback(self, progress: Progress) -> MigrationReport:
        """Restore the old columns: if `finish` dropped them, they are filled from `sandbox_info`,
        and what `run` filled in is removed. Servers go on meanwhile: they write and read the old
        columns before anything relies on that."""
        are_new = not await self._database.read(tables.has_old_columns)
        if are_new:
            await self._database.write(_add_old)
            await asyncio.sleep(self._noticed_sec)

        def restore(row: Any, _report: MigrationReport) -> dict[str, Any]:
            info = row.sandbox_info
            if info is None:
                return {}
            values: dict[str, Any] = {"sandbox_info": None} if info.get("migrated") else {}
            if are_new or (row.sandbox_id is None and row.preview_url is None):
                values |= {column: info[column] for column in tables.OLD_COLUMNS}
            return values

        return await self._each(restore, progress, kind="preview.rolled_back")

    async def _each(
        self,
        decide: Callable[[Any, MigrationReport], dict[str, Any]],
        progress: Progress,
        *,
        kind: str,
    ) -> MigrationReport:
        """All previews, a page per transaction; each gets the decided values, and an event of this
        kind."""
        report = MigrationReport()
        last = ""
        while True:

            def page(connection: sa.Connection, last: str = last) -> str:
                rows = connection.execute(
                    sa.select(previews)
                    .where(_preview.project_id > last)
                    .order_by(_preview.project_id)
                    .limit(_PAGE)
                    .with_for_update()
                ).all()
                changes = [(row, values) for row in rows if (values := decide(row, report))]
                self._write(connection, changes, kind)
                report.changed += len(changes)
                report.looked_at += len(rows)
                return rows[-1].project_id if rows else ""

            last = await self._database.write(page)
            progress(report.looked_at)
            if not last:
                return report

    def _write(
        self, connection: sa.Connection, changes: Sequence[tuple[Any, dict[str, Any]]], kind: str
    ) -> None:
        """The columns in which a preview is stored are not its state, so they are written beside
        the transition."""
        cause = Cause.by("operator", self._clock)
        transitions = [
            stored_anew(_ROWS.preview_with(row, values), kind, cause=cause)
            for row, values in changes
        ]
        self._transitions.write(connection, transitions)
        for row, values in changes:
            is_row = _preview.project_id == row.project_id
            connection.execute(previews.update().where(is_row).values(**values))

    async def _require_old(self) -> None:
        if not await self._database.read(tables.has_old_columns):
            raise MigrationRefusedError("The old columns are dropped: the migration is finished.")


def _add_old(connection: sa.Connection) -> None:
    for column in tables.OLD_COLUMNS:
        connection.execute(
            sa.text(f"ALTER TABLE {tables.SCHEMA}.previews ADD COLUMN {column} TEXT")
        )
