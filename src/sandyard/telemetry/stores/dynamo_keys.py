"""API keys on DynamoDB."""

from sandyard.kit.dynamo import ConditionFailedError
from sandyard.kit.paging import Page
from sandyard.telemetry.model import ApiKey
from sandyard.telemetry.stores.dynamo_items import key_item, key_of, page_by_gsi1
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables


class DynamoKeyStore:
    def __init__(self, tables: TelemetryTables) -> None:
        self._keys = tables.keys

    async def add_key(self, key: ApiKey) -> None:
        try:
            await self._keys.put(key_item(key), condition="attribute_not_exists(key_id)")
        except ConditionFailedError as refused:
            # Our own earlier try, whose answer was lost, looks just like this.
            if (refused.item or {}).get("api_key_hash") != key.api_key_hash:
                raise

    async def find_key(self, api_key_hash: str) -> ApiKey | None:
        """The index says which key it may be; the table, read as last written, whether it is."""
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
        items, next_cursor = await page_by_gsi1(
            self._keys, "api_keys", "key_id", limit=limit, cursor=cursor
        )
        return Page([key_of(item) for item in items], next_cursor)

    async def revoke_key(self, key_id: str) -> ApiKey | None:
        try:
            item = await self._keys.update(
                {"key_id": key_id},
                "SET is_active = :no",
                {"no": False},
                condition="attribute_exists(key_id)",
            )
        except ConditionFailedError:
            return None
        return key_of(item)

    async def touch_key(self, key_id: str, *, now: str, unless_after: str) -> None:
        is_due = "(attribute_not_exists(last_used_at) OR last_used_at <= :due)"
        try:
            await self._keys.update(
                {"key_id": key_id},
                "SET last_used_at = :now",
                {"now": now, "due": unless_after},
                condition=f"attribute_exists(key_id) AND {is_due}",
            )
        except ConditionFailedError:
            return
