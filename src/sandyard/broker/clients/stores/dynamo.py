"""Clients, last uses of their tokens and counted leases on DynamoDB, as items of the pool's table.

Clients are one partition, and so are the counted leases, which are few: those of clients with a
limit. A client's count is an item of its own.
"""

from collections.abc import Mapping, Sequence

from sandyard.broker.clients.model import Client
from sandyard.broker.stores.dynamo_entities import CLIENT, client_key, entities_in, find_entity
from sandyard.kit.dynamo.client import ConditionFailedError, TransactionRefusedError
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item

_SLOTS = "CLIENTSLOT"


class DynamoClientStore:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def find_client(self, name: str) -> Client | None:
        return await find_entity(self._table, Client, client_key(name))

    async def clients(self) -> Sequence[Client]:
        return await entities_in(self._table, Client, CLIENT)

    async def note_use(self, token_id: str, *, at: int) -> None:
        await self._table.put({**_use_key(token_id), "token_id": token_id, "used_at": at})

    async def last_uses(self, token_ids: Sequence[str]) -> Mapping[str, int]:
        items = await self._table.get_many([_use_key(each) for each in token_ids])
        return {item["token_id"]: item["used_at"] for item in items}

    async def take_slot(
        self, client: str, lease_key: tuple[str, str], *, most: int, now_ms: int
    ) -> bool:
        while True:
            if await self._renew(client, lease_key, now_ms):
                return True
            try:
                await self._table.transact(
                    self._table.put_action(
                        {**_slot_key(client, lease_key), **_slot(client, lease_key, now_ms)},
                        condition="attribute_not_exists(PK)",
                    ),
                    self._table.update_action(
                        _count_key(client),
                        "ADD leases :one",
                        {"one": 1, "most": most},
                        condition="attribute_not_exists(leases) OR leases < :most",
                    ),
                )
            except TransactionRefusedError as refused:
                taken, counted = refused.reasons
                if taken.is_condition:
                    continue  # another call of the same track and key took it: renew it
                if counted.is_condition:
                    return False
            else:
                return True

    async def _renew(self, client: str, lease_key: tuple[str, str], now_ms: int) -> bool:
        try:
            await self._table.update(
                _slot_key(client, lease_key),
                "SET taken_at_ms = :now",
                {"now": now_ms},
                condition="attribute_exists(PK)",
            )
        except ConditionFailedError:
            return False
        return True

    async def free_slot(
        self, client: str, lease_key: tuple[str, str], *, taken_at_ms: int | None = None
    ) -> None:
        condition = "attribute_exists(PK)"
        if taken_at_ms is not None:
            condition += " AND taken_at_ms = :taken"
        while True:
            try:
                await self._table.transact(
                    self._table.delete_action(
                        _slot_key(client, lease_key),
                        condition=condition,
                        values={"taken": taken_at_ms},
                    ),
                    self._table.update_action(_count_key(client), "ADD leases :less", {"less": -1}),
                )
            except TransactionRefusedError as refused:
                if not refused.reasons[0].is_condition:
                    continue
            return

    async def slots(
        self, *, taken_before_ms: int, limit: int, after: tuple[str, str, str] | None
    ) -> Sequence[tuple[str, str, str]]:
        start = None if after is None else _slot_key(after[0], (after[1], after[2]))
        found: list[tuple[str, str, str]] = []
        async for items in self._table.pages(
            condition="PK = :slots",
            values={"slots": _SLOTS, "before": taken_before_ms},
            where="taken_at_ms < :before",
            start=start,
        ):
            found += [(item["client"], item["track_id"], item["key"]) for item in items]
            if len(found) >= limit:
                break
        return found[:limit]


def _use_key(token_id: str) -> Item:
    return {"PK": f"TOKENUSE#{token_id}", "SK": "META"}


def _count_key(client: str) -> Item:
    return {"PK": f"CLIENTCOUNT#{client}", "SK": "META"}


def _slot_key(client: str, lease_key: tuple[str, str]) -> Item:
    return {"PK": _SLOTS, "SK": "#".join((client, *lease_key))}


def _slot(client: str, lease_key: tuple[str, str], now_ms: int) -> Item:
    return {"client": client, "track_id": lease_key[0], "key": lease_key[1], "taken_at_ms": now_ms}
