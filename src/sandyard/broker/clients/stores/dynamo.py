"""Clients, last uses of their tokens and counted leases on DynamoDB, as items of the pool's table.

Clients are one partition, and so are the counted leases, which are few: those of clients with a
limit. A client's count is an item of its own, and so is what it has taken in an hour.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sandyard.broker.clients.model import Client, Slot, hour_of
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
        self,
        client: str,
        lease_key: tuple[str, str],
        *,
        most: int,
        per_hour: int | None,
        now_ms: int,
    ) -> Slot:
        key, hour = _slot_key(client, lease_key), hour_of(now_ms)
        slot = {**key, **_slot(client, lease_key, now_ms), "paid_hour": hour}
        while True:
            renewed = await self._changed(key, "SET taken_at_ms = :now", {"now": now_ms})
            if renewed is not None:
                return Slot.USED if renewed.get("paid_hour") is None else Slot.UNUSED
            try:
                await self._table.transact(
                    self._table.put_action(slot, condition="attribute_not_exists(PK)"),
                    self._table.update_action(
                        _count_key(client),
                        "ADD leases :one",
                        {"one": 1, "most": most},
                        condition="attribute_not_exists(leases) OR leases < :most",
                    ),
                    self._spend(client, hour, 1, most=per_hour),
                )
            except TransactionRefusedError as refused:
                taken, counted, spent = refused.reasons
                if taken.is_condition:
                    continue  # another call of the same track and key took it: renew it
                if counted.is_condition:
                    return Slot.AT_LIMIT
                if spent.is_condition:
                    return Slot.OVER_BUDGET
            else:
                return Slot.UNUSED

    def _spend(self, client: str, hour: int, change: int, *, most: int | None = None) -> Any:
        """Change what the client has taken in this hour, as long as it is less than `most`."""
        values = {"change": change, "ttl": (hour + 2) * 3600}
        is_less = "attribute_not_exists(taken) OR taken < :most"
        return self._table.update_action(
            _budget_key(client, hour),
            "SET #ttl = :ttl ADD taken :change",
            values if most is None else {**values, "most": most},
            condition=None if most is None else is_less,
        )

    async def _changed(self, key: Item, expression: str, values: Item) -> Item | None:
        """The changed slot; None if there is none."""
        try:
            return await self._table.update(
                key, expression, values, condition="attribute_exists(PK)"
            )
        except ConditionFailedError:
            return None

    async def use_slot(self, client: str, lease_key: tuple[str, str]) -> bool:
        key = _slot_key(client, lease_key)
        return await self._changed(key, "REMOVE paid_hour", {}) is not None

    async def free_slot(
        self,
        client: str,
        lease_key: tuple[str, str],
        *,
        taken_at_ms: int | None = None,
        if_used: bool = False,
    ) -> None:
        while (slot := await self._table.get(_slot_key(client, lease_key))) is not None:
            paid_hour = slot.get("paid_hour")
            if taken_at_ms not in (None, slot["taken_at_ms"]) or (if_used and paid_hour):
                return
            try:
                await self._free(client, slot, paid_hour)
            except TransactionRefusedError:
                continue  # it has changed since it was read
            return

    async def _free(self, client: str, slot: Item, paid_hour: int | None) -> None:
        lease_key = (slot["track_id"], slot["key"])
        unchanged = {"taken": slot["taken_at_ms"], "paid": paid_hour}
        is_paid = "attribute_not_exists(paid_hour)" if paid_hour is None else "paid_hour = :paid"
        await self._table.transact(
            self._table.delete_action(
                _slot_key(client, lease_key),
                condition=f"taken_at_ms = :taken AND {is_paid}",
                values=unchanged,
            ),
            self._table.update_action(_count_key(client), "ADD leases :less", {"less": -1}),
            *([] if paid_hour is None else [self._spend(client, paid_hour, -1)]),
        )

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


def _budget_key(client: str, hour: int) -> Item:
    return {"PK": f"CLIENTBUDGET#{client}#{hour}", "SK": "META"}


def _slot_key(client: str, lease_key: tuple[str, str]) -> Item:
    return {"PK": _SLOTS, "SK": "#".join((client, *lease_key))}


def _slot(client: str, lease_key: tuple[str, str], now_ms: int) -> Item:
    return {"client": client, "track_id": lease_key[0], "key": lease_key[1], "taken_at_ms": now_ms}
