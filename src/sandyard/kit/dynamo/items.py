"""One DynamoDB table: its items and transaction actions, in plain Python values."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sandyard.kit.concurrency.tasks import for_each
from sandyard.kit.dynamo.client import ConditionFailedError, Dynamo
from sandyard.kit.dynamo.values import Item, plain, plain_or_none, wire, wire_value

_PARALLEL_BATCHES = 8
_SCAN_PAGE = 500
"""Few enough that a page comes in time also from an engine that is busy."""
_NAME = re.compile(r"#(\w+)")
"""An attribute name in an expression; reserved words can only be written this way."""


class Table:
    """One table's items, in plain values."""

    def __init__(self, engine: Dynamo, name: str) -> None:
        self.engine = engine
        self.name = name

    async def get(self, key: Item) -> Item | None:
        """A strongly consistent read."""
        answer = await self.engine.call(
            "GetItem", {"TableName": self.name, "Key": wire(key), "ConsistentRead": True}
        )
        return plain_or_none(answer.get("Item"))

    async def probe_get(self, key: Item) -> None:
        """Check whether the engine responds to reads; UnavailableError gives the reason."""
        await self.engine.probe(
            "GetItem", {"TableName": self.name, "Key": wire(key), "ConsistentRead": True}
        )

    async def get_many(self, keys: Sequence[Item]) -> list[Item]:
        """The items that exist; strongly consistent."""
        found: list[Item] = []
        for start in range(0, len(keys), 100):
            left = [wire(key) for key in keys[start : start + 100]]
            while left:
                request = {"Keys": left, "ConsistentRead": True}
                answer = await self.engine.call(
                    "BatchGetItem", {"RequestItems": {self.name: request}}
                )
                found += [plain(item) for item in answer["Responses"].get(self.name, [])]
                left = answer.get("UnprocessedKeys", {}).get(self.name, {}).get("Keys", [])
        return found

    async def update(
        self, key: Item, expression: str, values: Item, *, condition: str | None = None
    ) -> Item:
        action = self.update_action(key, expression, values, condition=condition)["Update"]
        answer = await self.engine.call("UpdateItem", {**action, "ReturnValues": "ALL_NEW"})
        return plain(answer.get("Attributes", {}))

    async def update_each(
        self,
        keys: Sequence[Item],
        expression: str,
        values: Item,
        *,
        condition: str = "attribute_exists(PK)",
        slots: asyncio.Semaphore,
    ) -> None:
        """Update the items that meet the condition: by default, those that exist."""

        async def update(key: Item) -> None:
            with suppress(ConditionFailedError):
                await self.update(key, expression, values, condition=condition)

        await for_each(keys, update, slots=slots)

    async def probe_update(self, key: Item, expression: str, values: Item) -> None:
        """Check whether the engine accepts writes; UnavailableError gives the reason."""
        action = self.update_action(key, expression, values)["Update"]
        await self.engine.probe("UpdateItem", action)

    async def put(
        self, item: Item, *, condition: str | None = None, values: Item | None = None
    ) -> None:
        await self.engine.call(
            "PutItem", self.put_action(item, condition=condition, values=values)["Put"]
        )

    async def put_all(self, items: Sequence[Item]) -> None:
        """Put all of them, in no order and not as a transaction. Only for moves."""
        await self._write_all([{"PutRequest": {"Item": wire(item)}} for item in items])

    async def delete_all(self, *, keep: Item) -> None:
        """Delete every item but this one. Only for moves."""
        answer = await self.engine.call("DescribeTable", {"TableName": self.name})
        key = [each["AttributeName"] for each in answer["Table"]["KeySchema"]]
        async for items in self.scan():
            keys = [{name: item[name] for name in key} for item in items]
            gone = [{"DeleteRequest": {"Key": wire(each)}} for each in keys if each != keep]
            await self._write_all(gone)

    async def _write_all(self, requests: Sequence[Mapping[str, Any]]) -> None:
        async def write(chunk: Sequence[Mapping[str, Any]]) -> None:
            left = chunk
            while left:
                answer = await self.engine.call(
                    "BatchWriteItem", {"RequestItems": {self.name: list(left)}}
                )
                left = answer.get("UnprocessedItems", {}).get(self.name, [])

        chunks = [requests[start : start + 25] for start in range(0, len(requests), 25)]
        await for_each(chunks, write, slots=asyncio.Semaphore(_PARALLEL_BATCHES))

    async def delete(self, key: Item) -> None:
        await self.engine.call("DeleteItem", {"TableName": self.name, "Key": wire(key)})

    async def transact(self, *actions: Mapping[str, Any]) -> None:
        """All actions or none; raises TransactionRefusedError with a reason for each."""
        await self.engine.call("TransactWriteItems", {"TransactItems": list(actions)})

    async def query(
        self,
        *,
        index: str | None = None,
        condition: str,
        values: Item,
        where: str | None = None,
        limit: int | None = None,
        start: Item | None = None,
        count_only: bool = False,
        forward: bool = True,
    ) -> tuple[list[Item], Item | None, int]:
        """One page (strongly consistent for the table, eventually for an index), the key where the
        next page starts, and the count."""
        payload: dict[str, Any] = {
            "TableName": self.name,
            "KeyConditionExpression": condition,
            **_expression(values, condition, where),
            "ScanIndexForward": forward,
            **({"IndexName": index} if index else {"ConsistentRead": True}),
        }
        if where:
            payload["FilterExpression"] = where
        if limit:
            payload["Limit"] = limit
        if start:
            payload["ExclusiveStartKey"] = wire(start)
        if count_only:
            payload["Select"] = "COUNT"
        answer = await self.engine.call("Query", payload)
        items = [plain(item) for item in answer.get("Items", [])]
        return items, plain_or_none(answer.get("LastEvaluatedKey")), answer["Count"]

    async def pages(self, **query: Any) -> AsyncIterator[list[Item]]:
        start: Item | None = query.pop("start", None)
        while True:
            items, start, _ = await self.query(**query, start=start)
            yield items
            if start is None:
                return

    async def query_all(self, **query: Any) -> list[Item]:
        return [item async for items in self.pages(**query) for item in items]

    async def count(self, **query: Any) -> int:
        """The number of items of a query; DynamoDB counts them."""
        total, start = 0, None
        while True:
            _, start, count = await self.query(**query, start=start, count_only=True)
            total += count
            if start is None:
                return total

    async def scan(self) -> AsyncIterator[list[Item]]:
        """The whole table, strongly consistent. Only for full checks."""
        start: dict[str, Any] | None = None
        while True:
            payload: dict[str, Any] = {"TableName": self.name, "ConsistentRead": True}
            payload["Limit"] = _SCAN_PAGE
            if start:
                payload["ExclusiveStartKey"] = start
            answer = await self.engine.call("Scan", payload)
            yield [plain(item) for item in answer["Items"]]
            start = answer.get("LastEvaluatedKey")
            if not start:
                return

    def update_action(
        self, key: Item, expression: str, values: Item, *, condition: str | None = None
    ) -> dict[str, Any]:
        action: dict[str, Any] = {
            "TableName": self.name,
            "Key": wire(key),
            "UpdateExpression": expression,
            **_expression(values, expression, condition),
        }
        return {"Update": _conditional(action, condition)}

    def put_action(
        self, item: Item, *, condition: str | None = None, values: Item | None = None
    ) -> dict[str, Any]:
        action = {"TableName": self.name, "Item": wire(item), **_expression(values, condition)}
        return {"Put": _conditional(action, condition)}

    def delete_action(self, key: Item, *, condition: str, values: Item) -> dict[str, Any]:
        action = {"TableName": self.name, "Key": wire(key), **_expression(values, condition)}
        return {"Delete": _conditional(action, condition)}

    def check_action(
        self, key: Item, *, condition: str, values: Item | None = None
    ) -> dict[str, Any]:
        action = {"TableName": self.name, "Key": wire(key), **_expression(values, condition)}
        return {"ConditionCheck": _conditional(action, condition)}


def _expression(values: Item | None, *texts: str | None) -> dict[str, Any]:
    """The `:values` and the attribute names that the expressions use."""
    text = " ".join(filter(None, texts))
    parts: dict[str, Any] = {}
    used = {
        f":{name}": wire_value(v)
        for name, v in (values or {}).items()
        if v is not None and f":{name}" in text
    }
    if used:
        parts["ExpressionAttributeValues"] = used
    names = {f"#{name}": name for name in _NAME.findall(text)} if "#" in text else {}
    if names:
        parts["ExpressionAttributeNames"] = names
    return parts


def _conditional(action: dict[str, Any], condition: str | None) -> dict[str, Any]:
    if condition is not None:
        action["ConditionExpression"] = condition
        action["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return action
