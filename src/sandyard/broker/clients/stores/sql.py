"""Clients, last uses of their tokens and counted leases in SQL."""

from collections.abc import Mapping, Sequence
from functools import partial

import sqlalchemy as sa

from sandyard.broker.clients.model import Client, client_id_of
from sandyard.broker.stores.sql_apply import CLIENTS
from sandyard.broker.stores.tables import client_counts, client_slots, clients, token_uses
from sandyard.kit.sql.database import Database, insert_or_ignore, insert_or_update
from sandyard.kit.sql.entities import find_entities, find_entity

_MOST_CLIENTS = 10_000
_slot = client_slots.c


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
        self, client: str, lease_key: tuple[str, str], *, most: int, now_ms: int
    ) -> bool:
        def work(connection: sa.Connection) -> bool:
            is_counted = connection.execute(
                client_slots.update().where(*_is(client, lease_key)).values(taken_at_ms=now_ms)
            ).rowcount
            if is_counted:
                return True
            connection.execute(
                insert_or_ignore(connection, client_counts).values(client=client, leases=0)
            )
            counted = connection.execute(
                client_counts.update()
                .where(client_counts.c.client == client, client_counts.c.leases < most)
                .values(leases=client_counts.c.leases + 1)
            )
            if counted.rowcount != 1:
                return False
            added = connection.execute(
                insert_or_ignore(connection, client_slots).values(
                    client=client, track_id=lease_key[0], key=lease_key[1], taken_at_ms=now_ms
                )
            )
            if added.rowcount != 1:  # another call of the same track and key was first
                _count(connection, client, -1)
            return True

        return await self._database.write(work)

    async def free_slot(
        self, client: str, lease_key: tuple[str, str], *, taken_at_ms: int | None = None
    ) -> None:
        conditions = _is(client, lease_key)
        if taken_at_ms is not None:
            conditions.append(_slot.taken_at_ms == taken_at_ms)

        def work(connection: sa.Connection) -> None:
            freed = connection.execute(client_slots.delete().where(*conditions))
            _count(connection, client, -freed.rowcount)

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


def _count(connection: sa.Connection, client: str, change: int) -> None:
    connection.execute(
        client_counts.update()
        .where(client_counts.c.client == client)
        .values(leases=client_counts.c.leases + change)
    )
