"""Clients, last uses of their tokens and counted leases in SQL."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from sandyard.broker.clients.model import Client, Slot, client_id_of, hour_of
from sandyard.broker.stores.tables import CLIENTS, client_counts, client_slots, clients, token_uses
from sandyard.kit.sql.database import Database, insert_or_ignore, insert_or_update
from sandyard.kit.sql.entities import find_entities, find_entity

_MOST_CLIENTS = 10_000
_slot = client_slots.c
_count = client_counts.c


class SqlClientStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_client(self, name: str) -> Client | None:
        return await find_entity(self._database, CLIENTS, clients.c.client_id == client_id_of(name))

    async def clients(self) -> Sequence[Client]:
        order = clients.c.client_id
        return await find_entities(self._database, CLIENTS, limit=_MOST_CLIENTS, order=order)

    async def note_use(self, token_id: str, *, at: int) -> None:
        row, key = {"token_id": token_id, "used_at": at}, ["token_id"]
        await self._database.write(partial(insert_or_update, table=token_uses, row=row, key=key))

    async def last_uses(self, token_ids: Sequence[str]) -> Mapping[str, int]:
        statement = sa.select(token_uses).where(token_uses.c.token_id.in_(token_ids))
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return {row.token_id: row.used_at for row in rows}

    async def take_slot(
        self,
        client: str,
        lease_key: tuple[str, str],
        *,
        most: int,
        per_hour: int | None,
        now_ms: int,
    ) -> Slot:
        def work(connection: sa.Connection) -> Slot:
            renewed = connection.execute(
                client_slots.update()
                .where(*_is(client, lease_key))
                .values(taken_at_ms=now_ms)
                .returning(_slot.paid_hour)
            ).first()
            if renewed is not None:
                return Slot.USED if renewed.paid_hour is None else Slot.UNUSED
            hour = hour_of(now_ms)
            if not _count_one(connection, client, most, per_hour, hour):
                return _refusal(connection, client, most)
            added = connection.execute(
                insert_or_ignore(connection, client_slots).values(
                    client=client,
                    track_id=lease_key[0],
                    key=lease_key[1],
                    taken_at_ms=now_ms,
                    paid_hour=hour,
                )
            )
            if added.rowcount != 1:  # another call of the same track and key was first
                _uncount(connection, client, hour)
            return Slot.UNUSED

        return await self._database.write(work)

    async def use_slot(self, client: str, lease_key: tuple[str, str]) -> bool:
        used = client_slots.update().where(*_is(client, lease_key)).values(paid_hour=None)
        return await self._database.write(lambda connection: connection.execute(used).rowcount == 1)

    async def free_slot(
        self,
        client: str,
        lease_key: tuple[str, str],
        *,
        taken_at_ms: int | None = None,
        if_used: bool = False,
    ) -> None:
        conditions = _is(client, lease_key)
        if taken_at_ms is not None:
            conditions.append(_slot.taken_at_ms == taken_at_ms)
        if if_used:
            conditions.append(_slot.paid_hour.is_(None))

        def work(connection: sa.Connection) -> None:
            freed = client_slots.delete().where(*conditions).returning(_slot.paid_hour)
            for paid_hour in connection.scalars(freed).all():
                _uncount(connection, client, paid_hour)

        await self._database.write(work)

    async def slots(
        self, *, taken_before_ms: int, limit: int, after: tuple[str, str, str] | None
    ) -> Sequence[tuple[str, str, str]]:
        here = sa.tuple_(_slot.client, _slot.track_id, _slot.key)
        statement = sa.select(client_slots).where(_slot.taken_at_ms < taken_before_ms)
        if after is not None:
            statement = statement.where(here > sa.tuple_(*after))
        statement = statement.order_by(_slot.client, _slot.track_id, _slot.key).limit(limit)
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return [(row.client, row.track_id, row.key) for row in rows]


def _is(client: str, lease_key: tuple[str, str]) -> list[sa.ColumnElement[bool]]:
    track_id, key = lease_key
    return [_slot.client == client, _slot.track_id == track_id, _slot.key == key]


def _count_one(
    connection: sa.Connection, client: str, most: int, per_hour: int | None, hour: int
) -> bool:
    connection.execute(insert_or_ignore(connection, client_counts).values(client=client, leases=0))
    conditions = [_count.client == client, _count.leases < most]
    if per_hour is not None:
        conditions.append(sa.or_(_count.hour != hour, _count.taken < per_hour))
    counted = client_counts.update().where(*conditions)
    taken = sa.case((_count.hour == hour, _count.taken + 1), else_=1)
    values = {"leases": _count.leases + 1, "hour": hour, "taken": taken}
    return connection.execute(counted.values(values)).rowcount == 1


def _refusal(connection: sa.Connection, client: str, most: int) -> Slot:
    leases = connection.scalar(sa.select(_count.leases).where(_count.client == client))
    return Slot.OVER_BUDGET if leases is not None and leases < most else Slot.AT_LIMIT


def _uncount(connection: sa.Connection, client: str, paid_hour: int | None) -> None:
    """Count one lease less, in the hour whose budget has paid for it too."""
    values: dict[str, Any] = {"leases": _count.leases - 1}
    if paid_hour is not None:
        values["taken"] = sa.case((_count.hour == paid_hour, _count.taken - 1), else_=_count.taken)
    connection.execute(client_counts.update().where(_count.client == client).values(values))
