"""From `sandbox_id` and `preview_url` to `sandbox_info`, and back without loss.

Three phases: the columns stand side by side and both are written (the schema's version 0002);
`run` fills `sandbox_info` where only the old ones are filled, and `validate` compares; `finish`
drops the old ones. `rollback` brings back what stood in the old columns, to the letter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from sandyard.kit.sql import Database
from sandyard.previews.errors import MigrationRefusedError
from sandyard.previews.model import SandboxInfo, iso
from sandyard.previews.stores.tables import projects

MIGRATED_TTL = timedelta(minutes=30)
"""How long a sandbox of the old columns is taken to have lived: they do not say."""

_project = projects.c
_PORTION = 500
_SCHEMA = "platform"
OLD_COLUMNS = ("sandbox_id", "preview_url")

Progress = Callable[[int], None]


@dataclass(slots=True)
class MigrationReport:
    looked_at: int = 0
    changed: int = 0
    differences: list[str] = field(default_factory=list)
    """Project ids and what is wrong with them."""


def migrated_info(row: Any) -> dict[str, Any] | None:
    """What `sandbox_info` becomes for a row that has the old columns alone; `migrated` marks it,
    so that a rollback knows what to take away."""
    if row.sandbox_id is None and row.preview_url is None:
        return None
    return {
        "sandbox_id": row.sandbox_id,
        "preview_url": row.preview_url,
        "start_time": iso(row.created_at),
        "end_time": iso(row.created_at + MIGRATED_TTL),
        "migrated": True,
    }


def info_of_old(row: Any, info: SandboxInfo | None) -> SandboxInfo | None:
    """What the old columns say; the times are those of `sandbox_info`, if it is of the same
    sandbox."""
    if info is not None and info.sandbox_id == (row.sandbox_id or ""):
        return info
    migrated = migrated_info(row)
    return None if migrated is None else SandboxInfo.from_json(migrated)


class OldColumns:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def count(self) -> int:
        statement = sa.select(sa.func.count()).select_from(projects)
        return await self._database.read(lambda c: int(c.execute(statement).scalar_one()))

    async def run(self, progress: Progress) -> MigrationReport:
        """Fill `sandbox_info` where only the old columns are filled. Running it again changes
        nothing."""
        await self._require_old()

        def fill(row: Any, _report: MigrationReport) -> dict[str, Any]:
            info = migrated_info(row) if row.sandbox_info is None else None
            return {} if info is None else {"sandbox_info": info}

        return await self._each(fill, progress)

    async def validate(self, progress: Progress) -> MigrationReport:
        """Compare both, row by row."""
        await self._require_old()

        def compare(row: Any, report: MigrationReport) -> dict[str, Any]:
            info = row.sandbox_info or {}
            for column in OLD_COLUMNS:
                if info.get(column) != getattr(row, column):
                    report.differences.append(f"{row.project_id}: {column} differs")
            return {}

        return await self._each(compare, progress)

    async def finish(self, progress: Progress) -> MigrationReport:
        """Drop the old columns, once both agree."""
        report = await self.validate(progress)
        if report.differences:
            raise MigrationRefusedError(
                f"There are {len(report.differences)} differences, which `validate` lists. `run` "
                "fills what is missing; where both are filled, set `sandbox_info` to NULL if the "
                "old ones are right, and run it then."
            )

        def drop(connection: sa.Connection) -> None:
            for column in OLD_COLUMNS:
                connection.execute(sa.text(f"ALTER TABLE {_SCHEMA}.projects DROP COLUMN {column}"))

        await self._database.write(drop)
        return report

    async def rollback(self, progress: Progress) -> MigrationReport:
        """The old columns as they were: those that `finish` dropped are filled from
        `sandbox_info`, and what `run` filled in is taken away again."""
        if not await self._has_old():
            await self._database.write(_add_old)

        def restore(row: Any, _report: MigrationReport) -> dict[str, Any]:
            info = row.sandbox_info
            if info is None:
                return {}
            values: dict[str, Any] = {"sandbox_info": None} if info.get("migrated") else {}
            if row.sandbox_id is None and row.preview_url is None:
                values |= {column: info[column] for column in OLD_COLUMNS}
            return values

        return await self._each(restore, progress)

    async def _each(
        self,
        decide: Callable[[Any, MigrationReport], dict[str, Any]],
        progress: Progress,
    ) -> MigrationReport:
        """All projects, a portion per transaction; each gets the values that are decided."""
        report = MigrationReport()
        last = 0
        while True:

            def portion(connection: sa.Connection, last: int = last) -> int:
                rows = connection.execute(
                    sa.select(projects)
                    .where(_project.id > last)
                    .order_by(_project.id)
                    .limit(_PORTION)
                    .with_for_update()
                ).all()
                changes = [(row.id, values) for row in rows if (values := decide(row, report))]
                _set(connection, changes)
                report.changed += len(changes)
                report.looked_at += len(rows)
                return rows[-1].id if rows else 0

            last = await self._database.write(portion)
            progress(report.looked_at)
            if not last:
                return report

    async def _has_old(self) -> bool:
        def there(connection: sa.Connection) -> bool:
            columns = sa.inspect(connection).get_columns("projects", schema=_SCHEMA)
            return set(OLD_COLUMNS) <= {column["name"] for column in columns}

        return await self._database.read(there)

    async def _require_old(self) -> None:
        if not await self._has_old():
            raise MigrationRefusedError("The old columns are dropped: the migration is finished.")


def _set(connection: sa.Connection, changes: Sequence[tuple[int, dict[str, Any]]]) -> None:
    """Each kind of change by one statement for all rows."""
    kinds: dict[frozenset[str], list[dict[str, Any]]] = {}
    for row_id, values in changes:
        named = {f"new_{column}": value for column, value in values.items()}
        kinds.setdefault(frozenset(values), []).append({"row_id": row_id, **named})
    for columns, rows in kinds.items():
        new = {each: sa.bindparam(f"new_{each}", type_=_project[each].type) for each in columns}
        connection.execute(
            projects.update()
            .where(_project.id == sa.bindparam("row_id"))
            .values(preview_revision=_project.preview_revision + 1, **new),
            rows,
        )


def _add_old(connection: sa.Connection) -> None:
    for column in OLD_COLUMNS:
        connection.execute(sa.text(f"ALTER TABLE {_SCHEMA}.projects ADD COLUMN {column} TEXT"))
