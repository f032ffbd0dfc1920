"""A part's store on DynamoDB: its state, an item of the part's event table, and the engine that is
called only with a right to."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from sandyard.kit.dynamo.client import ConditionFailedError, Dynamo, TableMissingError
from sandyard.kit.dynamo.event_items import SHARDS, TIME_INDEX
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item
from sandyard.kit.store_states import MoveConflictError, Phase, StoreState, WriteRight

STATE_KEY: Item = {"subject": "#store", "sequence": 0}
"""No subject id begins with `#`."""
_RECENT_DAYS = 7
_UNCHANGED = "#phase = :phase AND move_id = :move_id"


class DynamoStoreStates:
    def __init__(self, events: Table) -> None:
        self._table = events

    async def read(self) -> StoreState | None:
        try:
            item = await self._table.get(STATE_KEY)
        except TableMissingError:
            return None
        if item is None:
            return None
        phase = Phase(item["phase"])
        return StoreState(phase, item["move_id"], item["other"], item["at"], item["done"])

    async def change(self, before: StoreState | None, after: StoreState) -> None:
        condition, values = "attribute_not_exists(#phase)", {}
        if before is not None:
            condition = _UNCHANGED
            values = {"phase": before.phase.value, "move_id": before.move_id}
        try:
            await self._table.put(_item(after), condition=condition, values=values)
        except ConditionFailedError as error:
            if error.item != _item(after):  # else it is ours: the response to it was lost
                raise MoveConflictError from error

    async def is_empty(self) -> bool:
        try:
            if await self._has_recent_events():
                return False
            async for items in self._table.scan():
                if any(not item["subject"].startswith("#") for item in items):
                    return False
        except TableMissingError:
            return True
        return True

    async def _has_recent_events(self) -> bool:
        """A query that every server may make, before a scan, which some may not."""
        today = datetime.now(UTC).date()
        for day in (today - timedelta(days=number) for number in range(_RECENT_DAYS)):
            for shard in range(SHARDS):
                items, _, _ = await self._table.query(
                    index=TIME_INDEX,
                    condition="#bucket = :bucket",
                    values={"bucket": f"{day.isoformat()}#{shard}"},
                    limit=1,
                )
                if items:
                    return True
        return False

    async def close(self) -> None:
        await self._table.engine.close()


def _item(state: StoreState) -> Item:
    return {**STATE_KEY, **asdict(state), "phase": state.phase.value}


class FencedDynamo(Dynamo):
    """Called only while this process has the right to."""

    def __init__(self, right: WriteRight, states: DynamoStoreStates, **options: Any) -> None:
        super().__init__(**options)
        self._right = right
        self._states = states

    async def call(self, action: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        if not self._right.is_valid():
            await self._right.renew()
        return await super().call(action, payload)

    async def probe(self, action: str, payload: Mapping[str, Any]) -> None:
        if not self._right.is_valid():
            await self._right.renew()
        await super().probe(action, payload)

    async def close(self) -> None:
        await self._right.end()
        await self._states.close()
        await super().close()
