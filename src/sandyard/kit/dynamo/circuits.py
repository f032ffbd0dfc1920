"""States of circuit breakers as items of a DynamoDB table."""

from typing import Any

from sandyard.kit.circuits import CircuitState
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item


class DynamoCircuits:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def find(self, circuit: str) -> CircuitState:
        return _state_of(await self._table.get(_key(circuit)) or {})

    async def move(self, circuit: str, state: str, opened_at: float | None) -> CircuitState:
        opened = "REMOVE opened_at" if opened_at is None else ", opened_at = :at"
        return await self._change(
            circuit, f"SET #state = :state {opened}", state=state, at=opened_at
        )

    async def count_failure(self, circuit: str) -> CircuitState:
        return await self._change(circuit, "ADD failures :one", one=1)

    async def forget_failures(self, circuit: str) -> CircuitState:
        return await self._change(circuit, "SET failures = :none", none=0)

    async def _change(self, circuit: str, expression: str, **values: Any) -> CircuitState:
        return _state_of(await self._table.update(_key(circuit), expression, values))


def _key(circuit: str) -> Item:
    return {"PK": f"CIRCUIT#{circuit}", "SK": "META"}


def _state_of(item: Item) -> CircuitState:
    return CircuitState(
        item.get("state", "closed"), int(item.get("failures", 0)), item.get("opened_at")
    )
