"""Transitions of the pool on DynamoDB: each with its lease and its events in one transaction."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sandyard.broker.pool.model import PoolTransition, Sandbox, Status, Tombstone
from sandyard.broker.pool.stores import dynamo_items
from sandyard.broker.pool.stores.dynamo_claims import new_write_id
from sandyard.broker.stores.dynamo_entities import entity_actions
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.dynamo.client import TransactionRefusedError
from sandyard.kit.dynamo.event_items import were_written

_NO_TOMBSTONE = "attribute_not_exists(PK) OR kept_until <= :now"


class DynamoWrites:
    def __init__(self, pool: PoolTable) -> None:
        self._pool = pool
        self._table = pool.table

    async def apply(self, *transitions: Transition[Any]) -> bool:
        write_id = new_write_id()
        moves = _lease_moves(transitions)
        actions = [
            action for each in transitions for action in self._actions_of(each, write_id, moves)
        ]
        events = [self._pool.events.put_action(e) for each in transitions for e in each.events]
        try:
            await self._table.transact(*actions, *events)
        except TransactionRefusedError as refused:
            return were_written(events, refused)
        return True

    def _actions_of(
        self, transition: Transition[Any], write_id: str, moves: Mapping[tuple[str, str], str]
    ) -> list[dict[str, Any]]:
        entity = transition.before or transition.after
        if not isinstance(entity, Sandbox | Tombstone):
            return entity_actions(self._table, transition)
        after = transition.after
        moved = _lease_key(after if _begins_lease(transition) else entity)
        if moved not in moves or not isinstance(after, Sandbox):
            return self._actions(transition, write_id)
        change = self._pool.change_action(transition)
        if _ends_lease(transition):
            return [change]
        return [change, self._begin_lease(after, write_id, instead_of=moves[moved])]

    def _actions(self, transition: PoolTransition, write_id: str) -> list[dict[str, Any]]:
        before, after = transition.before, transition.result
        if isinstance(after, Tombstone):
            return self._delete(transition, after)
        if before is None:
            is_leased = after.status is Status.ALLOCATED
            lease = [self._begin_lease(after, write_id)] if is_leased else []
            return [*self._add(after), *lease]
        assert isinstance(before, Sandbox)  # noqa: S101 - nothing leads out of a tombstone
        change = self._pool.change_action(cast("Transition[Sandbox]", transition))
        if _ends_lease(transition):
            return [change, self._end_lease(before)]
        if after.status is not Status.ALLOCATED:
            return [change]
        if _begins_lease(transition):
            return [change, self._begin_lease(after, write_id)]
        return [change, self._move_end(after, write_id)]

    def _begin_lease(
        self, sandbox: Sandbox, write_id: str, *, instead_of: str | None = None
    ) -> dict[str, Any]:
        """Create a lease where there is none, or replace that of another sandbox."""
        item = dynamo_items.lease_item(*_lease_key(sandbox), sandbox.lease) | {"write_id": write_id}
        if instead_of is None:
            return self._table.put_action(item, condition="attribute_not_exists(PK)")
        return self._table.put_action(
            item, condition="sandbox_id = :old", values={"old": instead_of}
        )

    def _move_end(self, sandbox: Sandbox, write_id: str) -> dict[str, Any]:
        """With a new write id: a claim that read the old end can no longer end the lease."""
        lease = sandbox.lease
        return self._table.update_action(
            dynamo_items.lease_key(*_lease_key(sandbox)),
            "SET expires_at = :end, #ttl = :ttl, write_id = :write_id",
            {
                "end": lease.expires_at,
                "ttl": lease.collected_at,
                "id": sandbox.sandbox_id,
                "write_id": write_id,
            },
            condition="sandbox_id = :id",
        )

    def _end_lease(self, sandbox: Sandbox) -> dict[str, Any]:
        return self._table.delete_action(
            dynamo_items.lease_key(*_lease_key(sandbox)),
            condition="attribute_not_exists(PK) OR sandbox_id = :id",
            values={"id": sandbox.sandbox_id},
        )

    def _delete(self, transition: PoolTransition, tombstone: Tombstone) -> list[dict[str, Any]]:
        put = self._table.put_action(
            dynamo_items.tombstone_item(tombstone),
            condition=_NO_TOMBSTONE,
            values={"now": tombstone.deleted_at},
        )
        if transition.before is None:
            return [put]
        delete = self._table.delete_action(
            dynamo_items.sandbox_key(tombstone.sandbox_id),
            condition="#sequence = :before",
            values={"before": transition.before.sequence},
        )
        return [delete, put]

    def _add(self, sandbox: Sandbox) -> list[dict[str, Any]]:
        return [
            self._table.put_action(
                dynamo_items.sandbox_item(sandbox), condition="attribute_not_exists(PK)"
            ),
            self._table.check_action(
                dynamo_items.gone_key(sandbox.sandbox_id),
                condition=_NO_TOMBSTONE,
                values={"now": sandbox.created_at},
            ),
        ]


def _ends_lease(transition: PoolTransition) -> bool:
    before, after = transition.before, transition.after
    was_leased = isinstance(before, Sandbox) and before.status is Status.ALLOCATED
    return was_leased and not (isinstance(after, Sandbox) and after.status is Status.ALLOCATED)


def _begins_lease(transition: PoolTransition) -> bool:
    before, after = transition.before, transition.after
    was_leased = isinstance(before, Sandbox) and before.status is Status.ALLOCATED
    return isinstance(after, Sandbox) and after.status is Status.ALLOCATED and not was_leased


def _lease_key(row: Sandbox | Tombstone | None) -> tuple[str, str]:
    if not isinstance(row, Sandbox):
        return "", ""
    return row.allocated_to_track or "", row.idempotency_key or ""


def _lease_moves(transitions: Sequence[Transition[Any]]) -> dict[tuple[str, str], str]:
    """By track and key, the sandbox whose lease moves to another one in the same write, which may
    touch the lease's item only once."""
    begun = {_lease_key(each.after) for each in transitions if _begins_lease(each)}
    ended = [each.before for each in transitions if each.before and _ends_lease(each)]
    return {_lease_key(row): row.sandbox_id for row in ended if _lease_key(row) in begun}
