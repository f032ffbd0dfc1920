"""Transitions on DynamoDB: a compare-and-set on an item, and its events, in one transaction."""

from collections.abc import Callable
from typing import Any

from sandyard.kit.changes.transitions import E, Transition
from sandyard.kit.dynamo.client import TransactionRefusedError
from sandyard.kit.dynamo.event_items import EventItems, were_written
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item
from sandyard.kit.wired import wired


@wired
class DynamoTransitions:
    """Transitions of entities that are one item each."""

    table: Table
    events: EventItems
    key: str
    item_of: Callable[[Any], Item]

    async def apply(self, transition: Transition[E]) -> bool:
        """False if the item has changed since the decision. A write whose response was lost is
        retried and then refused too: its events show that it was carried out."""
        events = [self.events.put_action(event) for event in transition.events]
        try:
            await self.table.transact(self._action(transition), *events)
        except TransactionRefusedError as refused:
            return were_written(events, refused)
        return True

    def _action(self, transition: Transition[E]) -> dict[str, Any]:
        if transition.after is None and transition.before is not None:
            item = self.item_of(transition.before)
            return self.table.delete_action(
                {self.key: item[self.key]}, condition="#sequence = :sequence", values=item
            )
        after = self.item_of(transition.result)
        if transition.before is None:
            return self.table.put_action(after, condition=f"attribute_not_exists({self.key})")
        before = self.item_of(transition.before)
        return change_action(self.table, {self.key: after[self.key]}, before, after)


def change_action(table: Table, key: Item, before: Item, after: Item) -> dict[str, Any]:
    """Write the attributes that differ, if the item still has the sequence of `before`."""
    changed = [name for name in after if after[name] != before.get(name)]
    sets = [f"#{name} = :{name}" for name in changed if after[name] is not None]
    removes = [f"#{name}" for name in changed if after[name] is None]
    expression = f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(removes)}" if removes else "")
    values = {name: after[name] for name in changed} | {"before": before["sequence"]}
    return table.update_action(key, expression, values, condition="#sequence = :before")
