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

# The statements of each call, refused ones too, are built once: that takes longer than to run them.
_client = sa.bindparam("of_client", type_=sa.String)
_hour = sa.bindparam("this_hour", type_=sa.BigInteger)
_THE_SLOT = (
    _slot.client == _client,
    _slot.track_id == sa.bindparam("of_track"),
    _slot.key == sa.bindparam("of_key"),
)
_RENEW = (
    client_slots.update()
    .where(*_THE_SLOT)
    .values(taken_at_ms=sa.bindparam("now_ms"))
    .returning(_slot.paid_hour)
)
_USE = client_slots.update().where(*_THE_SLOT).values(paid_hour=None)
_COUNT_ONE = (
    client_counts.update()
    .where(_count.client == _client, _count.leases < sa.bindparam("most"))
    .values(
        leases=_count.leases + 1,
        hour=_hour,
        taken=sa.case((_count.hour == _hour, _count.taken + 1), else_=1),
    )
)
_COUNT_ONE_IN_BUDGET = _COUNT_ONE.where(
    sa.or_(_count.hour != _hour, _count.taken < sa.bindparam("per_hour"))
)
_COUNTED = sa.select(client_counts).where(_count.client == _client)


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
                _RENEW, {**_slot_values(client, lease_key), "now_ms": now_ms}
            ).first()
            if renewed is not None:
                return Slot.USED if renewed.paid_hour is None else Slot.UNUSED
            hour = hour_of(now_ms)
            refusal = _count_one(connection, client, most, per_hour, hour)
            if refusal is not None:
                return refusal
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
        values = _slot_values(client, lease_key)
        return await self._database.write(lambda c: c.execute(_USE, values).rowcount == 1)

    async def free_slot(
        self,
        client: str,
        lease_key: tuple[str, str],
        *,
        taken_at_ms: int | None = None,
        if_used: bool = False,
    ) -> None:
        conditions = [*_THE_SLOT]
        if taken_at_ms is not None:
            conditions.append(_slot.taken_at_ms == taken_at_ms)
        if if_used:
            conditions.append(_slot.paid_hour.is_(None))

        def work(connection: sa.Connection) -> None:
            freed = client_slots.delete().where(*conditions).returning(_slot.paid_hour)
            values = _slot_values(client, lease_key)
            for paid_hour in connection.scalars(freed, values).all():
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


def _slot_values(client: str, lease_key: tuple[str, str]) -> dict[str, str]:
    return {"of_client": client, "of_track": lease_key[0], "of_key": lease_key[1]}


def _count_one(
    connection: sa.Connection, client: str, most: int, per_hour: int | None, hour: int
) -> Slot | None:
    """None if it is counted, else why not: as counted by then, so that a count that has changed
    meanwhile is tried again."""
    statement = _COUNT_ONE if per_hour is None else _COUNT_ONE_IN_BUDGET
    values = {"of_client": client, "most": most, "per_hour": per_hour, "this_hour": hour}
    while connection.execute(statement, values).rowcount != 1:
        counted = connection.execute(_COUNTED, {"of_client": client}).first()
        if counted is None:
            new = insert_or_ignore(connection, client_counts).values(client=client, leases=0)
            connection.execute(new)
        elif counted.leases >= most:
            return Slot.AT_LIMIT
        elif per_hour is not None and counted.hour == hour and counted.taken >= per_hour:
            return Slot.OVER_BUDGET
    return None


def _uncount(connection: sa.Connection, client: str, paid_hour: int | None) -> None:
    """Count one lease less, in the hour whose budget has paid for it too."""
    values: dict[str, Any] = {"leases": _count.leases - 1}
    if paid_hour is not None:
        values["taken"] = sa.case((_count.hour == paid_hour, _count.taken - 1), else_=_count.taken)
    connection.execute(client_counts.update().where(_count.client == client).values(values))
