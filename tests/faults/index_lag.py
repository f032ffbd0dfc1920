"""An index as it was some seconds ago, worked out from what the table's items were before."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Wire = dict[str, Any]
Ask = Callable[[str, Mapping[str, Any]], Awaitable[Wire]]
"""A call to the engine that answers with its JSON or raises."""

WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"})

_Key = tuple[str, ...]
_COMPARISON = re.compile(r"\s*([\w#]+)\s*(<=|>=|=|<|>)\s*(:\w+)\s*\Z")
_BETWEEN = re.compile(r"([\w#]+)\s+BETWEEN\s+(:\w+)\s+AND\s+(:\w+)", re.IGNORECASE)
_EQUALS = re.compile(r"\s*([\w#]+)\s*=\s*(:\w+)\s*\Z")
_BEGINS_WITH = re.compile(r"\s*begins_with\(\s*([\w#]+)\s*,\s*(:\w+)\s*\)\s*\Z")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


class NotUnderstoodError(Exception):
    """The query is of a form that the lagging index cannot answer."""


@dataclass(slots=True)
class _Past:
    """What an item was before a write, which was on its way or done at `at`."""

    at: float
    before: Wire | None


@dataclass(frozen=True, slots=True)
class _Schema:
    keys: tuple[str, ...]
    indexes: Mapping[str, tuple[str, ...]]
    types: Mapping[str, str]
    """Of each key attribute, as `S` or `N`."""


class IndexHistory:
    """Remembers what recent writes replaced; writes to one item pass one after the other."""

    def __init__(self) -> None:
        self._pasts: dict[str, dict[_Key, list[_Past]]] = {}
        self._locks: dict[tuple[str, _Key], asyncio.Lock] = {}
        self._schemas: dict[str, _Schema] = {}

    @asynccontextmanager
    async def recording(
        self, action: str, payload: Mapping[str, Any], ask: Ask
    ) -> AsyncIterator[Callable[[], None]]:
        """Around a write; what it yields is called if the write changed nothing."""
        keys = sorted({each async for each in self._written(action, payload, ask)})
        async with AsyncExitStack() as stack:
            for place in keys:
                lock = self._locks.setdefault(place, asyncio.Lock())
                await stack.enter_async_context(lock)
            before = await self._images(keys, ask)
            entries = {place: _Past(_now(), before.get(place)) for place in keys}
            for (table, key), entry in entries.items():
                self._pasts.setdefault(table, {}).setdefault(key, []).append(entry)

            def nothing_changed() -> None:
                for (table, key), entry in entries.items():
                    self._pasts[table][key].remove(entry)
                entries.clear()

            yield nothing_changed
            for entry in entries.values():
                entry.at = _now()

    async def query(self, payload: Mapping[str, Any], ask: Ask, *, lag_sec: float) -> Wire:
        """The answer to a query of an index, as of `lag_sec` ago."""
        table = payload["TableName"]
        schema = await self._schema(table, ask)
        index_keys = schema.indexes[payload["IndexName"]]
        condition = _Condition(payload["KeyConditionExpression"], payload)
        now_there = await _all_pages(payload, condition, ask)
        changed = self._as_of(table, _now() - lag_sec)
        items = [item for item in now_there if _key_of(item, schema.keys) not in changed]
        items += [
            item
            for item in changed.values()
            if item and all(name in item for name in index_keys) and condition.holds(item)
        ]

        def place(item: Wire) -> tuple[Any, ...]:
            sort = (_value(item[name]) for name in index_keys[1:])
            return (*sort, *_key_of(item, schema.keys))

        forward = payload.get("ScanIndexForward", True)
        placed = sorted(((place(item), item) for item in items), key=_first, reverse=not forward)
        if start := payload.get("ExclusiveStartKey"):
            after = place(start)
            placed = [entry for entry in placed if (entry[0] > after) is forward]
            placed = [entry for entry in placed if entry[0] != after]
        return _page([item for _, item in placed], payload, (*schema.keys, *index_keys))

    def _as_of(self, table: str, then: float) -> dict[_Key, Wire | None]:
        """What the items that changed since were at that time."""
        pasts = self._pasts.setdefault(table, {})
        for key in list(pasts):
            pasts[key] = [entry for entry in pasts[key] if entry.at > then]
            if not pasts[key]:
                del pasts[key]
        return {key: entries[0].before for key, entries in pasts.items()}

    async def _written(
        self, action: str, payload: Mapping[str, Any], ask: Ask
    ) -> AsyncIterator[tuple[str, _Key]]:
        writes: list[Mapping[str, Any]] = [payload]
        if action == "TransactWriteItems":
            entries = [next(iter(entry.items())) for entry in payload["TransactItems"]]
            writes = [write for kind, write in entries if kind != "ConditionCheck"]
        for write in writes:
            schema = await self._schema(write["TableName"], ask)
            yield write["TableName"], _key_of(write.get("Key") or write["Item"], schema.keys)

    async def _images(
        self, places: list[tuple[str, _Key]], ask: Ask
    ) -> dict[tuple[str, _Key], Wire]:
        wanted: dict[str, dict[str, Any]] = {}
        for table, key in places:
            schema = self._schemas[table]
            entry = wanted.setdefault(table, {"Keys": [], "ConsistentRead": True})
            entry["Keys"].append(
                {n: {schema.types[n]: v} for n, v in zip(schema.keys, key, strict=True)}
            )
        answer = await ask("BatchGetItem", {"RequestItems": wanted})
        return {
            (table, _key_of(item, self._schemas[table].keys)): item
            for table, items in answer["Responses"].items()
            for item in items
        }

    async def _schema(self, table: str, ask: Ask) -> _Schema:
        if table not in self._schemas:
            described = (await ask("DescribeTable", {"TableName": table}))["Table"]
            self._schemas[table] = _Schema(
                _names(described),
                {i["IndexName"]: _names(i) for i in described.get("GlobalSecondaryIndexes", [])},
                {a["AttributeName"]: a["AttributeType"] for a in described["AttributeDefinitions"]},
            )
        return self._schemas[table]


class _Condition:
    """Comparisons joined by AND, as key conditions are."""

    def __init__(self, text: str, payload: Mapping[str, Any]) -> None:
        self.text = text
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self._comparisons: list[tuple[str, Callable[[Any, Any], bool], Any]] = []
        comparisons = _BETWEEN.sub(r"\1 >= \2 AND \1 <= \3", text)
        for part in re.split(r"\s+AND\s+", comparisons, flags=re.IGNORECASE):
            match = _COMPARISON.match(part)
            if match is None:
                raise NotUnderstoodError(part)
            name, operator, value = match.groups()
            attribute = _attribute(name, payload)
            if name.startswith("#"):
                self.names[name] = attribute
            self.values[value] = payload["ExpressionAttributeValues"][value]
            self._comparisons.append((attribute, _OPERATORS[operator], _value(self.values[value])))

    def holds(self, item: Wire) -> bool:
        return all(
            name in item and holds(_value(item[name]), value)
            for name, holds, value in self._comparisons
        )


async def _all_pages(payload: Mapping[str, Any], condition: _Condition, ask: Ask) -> list[Wire]:
    whole: dict[str, Any] = {
        "TableName": payload["TableName"],
        "IndexName": payload["IndexName"],
        "KeyConditionExpression": condition.text,
        "ExpressionAttributeValues": condition.values,
    }
    if condition.names:
        whole["ExpressionAttributeNames"] = condition.names
    items: list[Wire] = []
    while True:
        answer = await ask("Query", whole)
        items += answer["Items"]
        if "LastEvaluatedKey" not in answer:
            return items
        whole["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


def _page(items: list[Wire], payload: Mapping[str, Any], keys: tuple[str, ...]) -> Wire:
    limit = payload.get("Limit")
    read = items if limit is None else items[:limit]
    shown = read
    for where in filter(None, payload.get("FilterExpression", "").split(" AND ")):
        shown = [item for item in shown if _passes(item, where, payload)]
    answer: Wire = {"Count": len(shown), "ScannedCount": len(read)}
    if payload.get("Select") != "COUNT":
        answer["Items"] = shown
    if read and len(read) == limit:
        answer["LastEvaluatedKey"] = {name: read[-1][name] for name in dict.fromkeys(keys)}
    return answer


def _passes(item: Wire, where: str, payload: Mapping[str, Any]) -> bool:
    begins, equals = _BEGINS_WITH.match(where), _EQUALS.match(where)
    match = begins or equals
    if match is None:
        raise NotUnderstoodError(where)
    found = _value(item.get(_attribute(match[1], payload), {"S": ""}))
    wanted = _value(payload["ExpressionAttributeValues"][match[2]])
    return bool(found.startswith(wanted) if begins else found == wanted)


def _first(entry: tuple[tuple[Any, ...], Wire]) -> tuple[Any, ...]:
    return entry[0]


def _attribute(name: str, payload: Mapping[str, Any]) -> str:
    return str(payload["ExpressionAttributeNames"][name]) if name.startswith("#") else name


def _key_of(item: Mapping[str, Any], names: tuple[str, ...]) -> _Key:
    return tuple(str(_value(item[name])) for name in names)


def _names(described: Mapping[str, Any]) -> tuple[str, ...]:
    kinds = {entry["KeyType"]: entry["AttributeName"] for entry in described["KeySchema"]}
    return tuple(kinds[kind] for kind in ("HASH", "RANGE") if kind in kinds)


def _value(value: Mapping[str, Any]) -> Any:
    [(kind, inner)] = value.items()
    return Decimal(inner) if kind == "N" else inner


def _now() -> float:
    return asyncio.get_running_loop().time()
