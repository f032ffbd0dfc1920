"""An account's rows, in whichever of the Platform's tables they are."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from sandyard.kit.changes.transitions import Entity, Transition, json_value
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import find_entities
from sandyard.kit.sql.transitions import EntityTable, SqlTransitions
from sandyard.platform.account_data.ports import Section
from sandyard.platform.api_keys.sql import API_KEYS
from sandyard.platform.notifications.sql import NOTIFICATIONS
from sandyard.platform.projects.sql import PROJECTS
from sandyard.platform.schema import tables
from sandyard.platform.templates.sql import TEMPLATES
from sandyard.platform.variables.sql import VARIABLES

_BATCH = 500
_HIDDEN = frozenset(
    {"id", "sequence", "password_hash", "reset_token", "token_version", "key_hash", "encrypted"}
)
"""Columns that are internal or secret. A variable's value has its own call, unless it is secret."""
_own_sandboxes = sa.select(tables.sandboxes.c.sandbox_id)


def _owned(column: sa.Column[Any], account_id: str) -> sa.ColumnElement[bool]:
    return column == account_id


def _of_sandboxes(column: sa.Column[Any], account_id: str) -> sa.ColumnElement[bool]:
    return column.in_(_own_sandboxes.where(tables.sandboxes.c.owner_account_id == account_id))


_SECTIONS = {
    "account": (tables.users, tables.users.c.account_id, _owned),
    "projects": (tables.projects, tables.projects.c.owner_account_id, _owned),
    "templates": (tables.templates, tables.templates.c.owner_account_id, _owned),
    "api_keys": (tables.api_keys, tables.api_keys.c.user_account_id, _owned),
    "variables": (tables.variables, tables.variables.c.owner_account_id, _owned),
    "notifications": (tables.notifications, tables.notifications.c.user_account_id, _owned),
    "sandboxes": (tables.sandboxes, tables.sandboxes.c.owner_account_id, _owned),
    "usage": (tables.sandbox_usage, tables.sandbox_usage.c.user_account_id, _owned),
    "billing_records": (
        tables.billing_records,
        tables.billing_records.c.user_account_id,
        _owned,
    ),
    "measurements": (
        tables.sandbox_metrics,
        tables.sandbox_metrics.c.sandbox_id,
        _of_sandboxes,
    ),
    "events": (tables.events, tables.events.c.account_id, _owned),
}
_OWNERS: Sequence[tuple[EntityTable[Any], sa.ColumnElement[Any], sa.ColumnElement[Any] | None]] = (
    (API_KEYS, tables.api_keys.c.user_account_id, tables.api_keys.c.deleted_at),
    (TEMPLATES, tables.templates.c.owner_account_id, tables.templates.c.deleted_at),
    (VARIABLES, tables.variables.c.owner_account_id, None),
    (NOTIFICATIONS, tables.notifications.c.user_account_id, tables.notifications.c.deleted_at),
    (PROJECTS, tables.projects.c.owner_account_id, tables.projects.c.deleted_at),
)
"""For each kind that is removed: the owner's column, and the time of removal."""


class SqlAccountDataStore:
    def __init__(self, database: Database, transitions: SqlTransitions, *, clock: Clock) -> None:
        self._database = database
        self._transitions = transitions
        self._clock = clock

    def sections(self) -> Sequence[Section]:
        return [(name, partial(self._records, name)) for name in _SECTIONS]

    async def _records(
        self, name: str, account_id: str
    ) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        table, column, owned = _SECTIONS[name]
        key = table.c["position" if name == "events" else "id"]
        statement = sa.select(table).where(owned(column, account_id)).order_by(key).limit(_BATCH)
        rows = await self._rows(statement)
        while rows:
            yield [_record(row) for row in rows]
            rows = await self._rows(statement.where(key > getattr(rows[-1], key.name)))

    async def uncleared(self, *, limit: int) -> Sequence[str]:
        user = tables.users.c
        statement = sa.select(user.account_id).where(
            user.deleted_at.is_not(None), user.cleared_at.is_(None)
        )
        rows = await self._rows(statement.order_by(user.account_id).limit(limit))
        return [row.account_id for row in rows]

    async def sandboxes_left(self, account_id: str) -> Sequence[str]:
        statement = _own_sandboxes.where(
            tables.sandboxes.c.owner_account_id == account_id,
            tables.sandboxes.c.status != "recycled",
        )
        return [row.sandbox_id for row in await self._rows(statement)]

    async def entities_left(self, account_id: str, *, limit: int) -> Sequence[Entity]:
        for mapping, owner, deleted_at in _OWNERS:
            is_there = [] if deleted_at is None else [deleted_at.is_(None)]
            conditions = (owner == account_id, *is_there)
            found = await find_entities(self._database, mapping, *conditions, limit=limit)
            if found:
                return found
        return []

    async def clear(self, account_ids: Collection[str]) -> None:
        now: datetime = utc_time(self._clock.now())
        statement = (
            tables.users.update()
            .where(tables.users.c.account_id.in_(account_ids))
            .values(cleared_at=now)
        )
        await self._database.write(lambda connection: connection.execute(statement))

    async def apply(self, *transitions: Transition[Any]) -> bool:
        return await self._transitions.apply(*transitions)

    async def _rows(self, statement: sa.Select[Any]) -> Sequence[Any]:
        return await self._database.read(lambda connection: connection.execute(statement).all())


def _record(row: Any) -> dict[str, Any]:
    values = row._mapping  # noqa: SLF001 - how SQLAlchemy names its public mapping
    return {str(name): json_value(values[name]) for name in values if name not in _HIDDEN}
