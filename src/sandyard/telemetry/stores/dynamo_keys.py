"""API keys on DynamoDB."""

from collections.abc import AsyncIterator, Sequence

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.clock import rfc3339_from_ms
from sandyard.kit.dynamo.client import ConditionFailedError
from sandyard.kit.dynamo.transitions import DynamoTransitions
from sandyard.kit.paging import Page
from sandyard.telemetry.model import ApiKey
from sandyard.telemetry.stores.dynamo_items import key_item, key_of, page_by_gsi1
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables


class DynamoKeyStore:
    def __init__(self, tables: TelemetryTables) -> None:
        self._keys = tables.keys
        self._transitions = DynamoTransitions(
            tables.keys, tables.events, key="key_id", item_of=key_item
        )

    async def apply(self, transition: Transition[ApiKey]) -> bool:
        return await self._transitions.apply(transition)

    async def find_key(self, key_id: str) -> ApiKey | None:
        item = await self._keys.get({"key_id": key_id})
        return None if item is None else key_of(item)

    async def find_key_by_hash(self, api_key_hash: str) -> ApiKey | None:
        """The index finds the candidate; a consistent read of the table confirms it."""
        candidates, _, _ = await self._keys.query(
            index="api_key_hash_index",
            condition="api_key_hash = :hash",
            values={"hash": api_key_hash},
        )
        for candidate in candidates:
            item = await self._keys.get({"key_id": candidate["key_id"]})
            if item is not None and item["api_key_hash"] == api_key_hash:
                return key_of(item)
        return None

    async def page_of_keys(self, *, limit: int, cursor: str | None) -> Page[ApiKey]:
        order = (self._keys, key_of, "api_keys", "key_id")
        return await page_by_gsi1(*order, listing="api_keys", limit=limit, cursor=cursor)

    async def all_keys(self) -> AsyncIterator[Sequence[ApiKey]]:
        async for items in self._keys.scan():
            yield [key_of(item) for item in items]

    async def touch_key(self, key_id: str, *, used_at: int, unless_after: int) -> None:
        is_due = "(attribute_not_exists(last_used_at) OR last_used_at <= :due)"
        try:
            await self._keys.update(
                {"key_id": key_id},
                "SET last_used_at = :used",
                {"used": rfc3339_from_ms(used_at), "due": rfc3339_from_ms(unless_after)},
                condition=f"attribute_exists(key_id) AND {is_due}",
            )
        except ConditionFailedError:
            return
