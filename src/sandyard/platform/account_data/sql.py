"""An account's rows, in whichever of the Platform's tables they are."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from sandyard.kit.changes.transitions import Entity, json_value
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import find_entities
from sandyard.kit.sql.transitions import EntityTable, SqlEntityStore, SqlTransitions
from sandyard.platform.account_data.ports import Section
from sandyard.platform.api_keys.sql import API_KEYS
from sandyard.platform.images.sql import IMAGES
from sandyard.platform.notifications.sql import NOTIFICATIONS
from sandyard.platform.projects.sql import PROJECTS
from sandyard.platform.schema import tables
from sandyard.platform.ssh_keys.sql import SSH_KEYS
from sandyard.platform.templates.sql import TEMPLATES
from sandyard.platform.variables.sql import VARIABLES
from sandyard.platform.volumes.sql import VOLUMES

_BATCH = 500
_HIDDEN = frozenset(
    {
        "id",
        "sequence",
        "password_hash",
        "verification_token",
        "reset_token",
        "token_version",
        "key_hash",
        "encrypted",
    }
)
"""Columns that are internal or secret. A variable's value has its own call, unless it is secret."""
_SECTIONS: Mapping[str, sa.Table] = {
    "account": tables.users,
    "projects": tables.projects,
    "templates": tables.templates,
    "images": tables.images,
    "volumes": tables.volumes,
    "api_keys": tables.api_keys,
    "ssh_keys": tables.ssh_keys,
    "variables": tables.variables,
    "notifications": tables.notifications,
    "sandboxes": tables.sandboxes,
    "usage": tables.sandbox_usage,
    "billing_records": tables.billing_records,
    "measurements": tables.sandbox_metrics,
    "events": tables.events,
}
_OWNERS = ("owner_account_id", "user_account_id", "account_id")
"""The column with the owner has one of these names."""
_REMOVED: Sequence[EntityTable[Any]] = (
    API_KEYS,
    SSH_KEYS,
    TEMPLATES,
    IMAGES,
    VOLUMES,
    VARIABLES,
    NOTIFICATIONS,
    PROJECTS,
)
_own_sandboxes = sa.select(tables.sandboxes.c.sandbox_id)


def _owned(table: sa.Table, account_id: str) -> sa.ColumnElement[bool]:
    owner = next((table.c[each] for each in _OWNERS if each in table.c), None)
    if owner is not None:
        return owner == account_id
    of_account = tables.sandboxes.c.owner_account_id == account_id
    return table.c.sandbox_id.in_(_own_sandboxes.where(of_account))


class SqlAccountDataStore(SqlEntityStore):
    def __init__(self, database: Database, transitions: SqlTransitions, *, clock: Clock) -> None:
        super().__init__(database, transitions)
        self._clock = clock

    def sections(self) -> Sequence[Section]:
        return [(name, partial(self._records, name)) for name in _SECTIONS]

    async def _records(
        self, name: str, account_id: str
    ) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        table = _SECTIONS[name]
        key = table.c["position" if name == "events" else "id"]
        statement = sa.select(table).where(_owned(table, account_id)).order_by(key).limit(_BATCH)
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
        for mapping in _REMOVED:
            conditions = [_owned(mapping.table, account_id)]
            if "deleted_at" in mapping.table.c:
                conditions.append(mapping.table.c.deleted_at.is_(None))
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

    async def _rows(self, statement: sa.Select[Any]) -> Sequence[Any]:
        return await self._database.read(lambda connection: connection.execute(statement).all())


def _record(row: Any) -> dict[str, Any]:
    values = row._mapping  # noqa: SLF001 - how SQLAlchemy names its public mapping
    return {str(name): json_value(values[name]) for name in values if name not in _HIDDEN}
