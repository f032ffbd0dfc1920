"""The pool on DynamoDB: one table, one write per claim, and no decision resting on an index.

A sandbox is `SBX#{id}`, its lease `LEASE#{track}#{key}`, its tombstone `GONE#{id}`. Only sandboxes
carry index keys. The indexes lag, so they are asked where to look; what is true is in conditions.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sandyard.broker.model import (
    Change,
    Claim,
    Claimed,
    HeldLease,
    Lease,
    Sandbox,
    Status,
    Tombstone,
)
from sandyard.broker.stores.dynamo_claims import DynamoClaims, new_write_id
from sandyard.broker.stores.dynamo_items import (
    SANDBOX_FIELDS,
    entry_of,
    gone_key,
    index_key,
    lease_key,
    lease_of,
    named,
    sandbox_item,
    sandbox_key,
    sandbox_of,
    tombstone_item,
    tombstone_of,
    unchanged,
)
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.kit.clock import Clock
from sandyard.kit.dynamo import ConditionFailedError, TransactionRefusedError
from sandyard.kit.dynamo_values import Item
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor

_PARALLEL = 32
_COUNTS_KEY = {"PK": "COUNTS", "SK": "META"}
_IS_STATUS = "#status = :status"


class DynamoPoolStore:
    def __init__(
        self,
        pool: PoolTable,
        *,
        clock: Clock,
        reservoir_size: int,
        on_conflict: Callable[[], None] = lambda: None,
        counts_age_sec: float = 15,
    ) -> None:
        self._pool = pool
        self._table = pool.table
        self._clock = clock
        self._counts_age_sec = counts_age_sec
        self._claims = DynamoClaims(
            pool, clock=clock, reservoir_size=reservoir_size, on_conflict=on_conflict
        )
        self._slots = asyncio.Semaphore(_PARALLEL)
        self._checked = False

    async def claim(self, claim: Claim) -> Claimed | None:
        return await self._claims.claim(claim)

    async def find(self, sandbox_id: str) -> Sandbox | Tombstone | None:
        items = await self._table.get_many([sandbox_key(sandbox_id), gone_key(sandbox_id)])
        entries = {item["PK"]: item for item in items}
        if row := entries.get(f"SBX#{sandbox_id}"):
            return sandbox_of(row)
        gone = entries.get(f"GONE#{sandbox_id}")
        return tombstone_of(gone) if gone else None

    async def find_lease(self, track_id: str, key: str) -> Lease | None:
        item = await self._table.get(lease_key(track_id, key))
        return lease_of(item) if item else None

    async def apply(self, changes: Sequence[Change]) -> Sequence[bool]:
        return await self._in_parallel([self._apply(change) for change in changes])

    async def _apply(self, change: Change) -> bool:
        before, after = change.before, change.after
        write_id = new_write_id()
        update = self._change_action(change, write_id)
        try:
            if before.status is Status.ALLOCATED and after.status is not Status.ALLOCATED:
                await self._end_allocation(before, update)
            else:
                await self._table.engine.call("UpdateItem", update["Update"])
        except ConditionFailedError as refused:
            return _wrote(write_id, refused.item)
        except TransactionRefusedError as refused:
            return _wrote(write_id, refused.reasons[0].item)
        return True

    async def _end_allocation(self, before: Sandbox, update: Mapping[str, Any]) -> None:
        """Change the row and remove its lease; one that names another sandbox stays.

        Only an adopted table has such rows: their track and key have a newer sandbox.
        """
        try:
            await self._table.transact(update, self._end_lease(before))
        except TransactionRefusedError as refused:
            if refused.reasons[0].is_condition:
                raise
            await self._table.engine.call("UpdateItem", update["Update"])

    def _change_action(self, change: Change, write_id: str) -> dict[str, Any]:
        old, new = asdict(change.before), asdict(change.after)
        changed = {name: new[name] for name in SANDBOX_FIELDS if new[name] != old[name]}
        sets = [f"{named(n)} = :n_{n}" for n, v in changed.items() if v is not None]
        sets.append("write_id = :write_id")
        removes = [named(n) for n, v in changed.items() if v is None]
        expression = " ".join(
            f"{verb} {', '.join(parts)}"
            for verb, parts in (("SET", sets), ("REMOVE", removes))
            if parts
        )
        condition, guards = unchanged(change.before)
        values = {f"n_{name}": value for name, value in changed.items()} | guards
        values["write_id"] = write_id
        return self._table.update_action(
            sandbox_key(change.before.sandbox_id), expression, values, condition=condition
        )

    def _end_lease(self, sandbox: Sandbox) -> dict[str, Any]:
        key = lease_key(sandbox.allocated_to_track or "", sandbox.idempotency_key or "")
        return self._table.delete_action(
            key,
            condition="attribute_not_exists(PK) OR sandbox_id = :id",
            values={"id": sandbox.sandbox_id},
        )

    async def bury(self, sandbox: Sandbox, tombstone: Tombstone) -> bool:
        condition, guards = unchanged(sandbox)
        write_id = new_write_id()
        try:
            await self._table.transact(
                self._table.delete_action(
                    sandbox_key(sandbox.sandbox_id), condition=condition, values=guards
                ),
                self._table.put_action(
                    tombstone_item(tombstone) | {"write_id": write_id},
                    condition="attribute_not_exists(PK) OR kept_until <= :now",
                    values={"now": tombstone.deleted_at},
                ),
            )
        except TransactionRefusedError as refused:
            return _wrote(write_id, refused.reasons[1].item)
        return True

    async def add(self, new: Sequence[Sandbox]) -> int:
        return sum(await self._in_parallel([self._add(sandbox) for sandbox in new]))

    async def _add(self, sandbox: Sandbox) -> bool:
        write_id = new_write_id()
        try:
            await self._table.transact(
                self._table.put_action(
                    sandbox_item(sandbox) | {"write_id": write_id},
                    condition="attribute_not_exists(PK)",
                ),
                self._table.check_action(
                    gone_key(sandbox.sandbox_id),
                    condition="attribute_not_exists(PK) OR kept_until <= :now",
                    values={"now": sandbox.created_at},
                ),
            )
        except TransactionRefusedError as refused:
            return _wrote(write_id, refused.reasons[0].item)
        return True

    async def buried(self, sandbox_ids: Sequence[str]) -> set[str]:
        items = await self._table.get_many([gone_key(each) for each in sandbox_ids])
        return {item["sandbox_id"] for item in items}

    async def confirm_listed(self, sandbox_ids: Sequence[str], *, now: int) -> None:
        async def confirm(sandbox_id: str) -> None:
            try:
                await self._table.update(
                    sandbox_key(sandbox_id),
                    "SET last_synced = :now",
                    {"now": now, "free": Status.AVAILABLE, "stale": Status.STALE},
                    condition="#status = :free OR #status = :stale",
                )
            except ConditionFailedError:
                return

        await self._in_parallel([confirm(each) for each in sandbox_ids])

    async def renew_tombstones(self, sandbox_ids: Sequence[str], *, kept_until: int) -> None:
        async def renew(sandbox_id: str) -> None:
            try:
                await self._table.update(
                    gone_key(sandbox_id),
                    "SET kept_until = :until, #ttl = :until",
                    {"until": kept_until},
                    condition="attribute_exists(PK)",
                )
            except ConditionFailedError:
                return

        await self._in_parallel([renew(each) for each in sandbox_ids])

    async def drop_tombstones(self, *, now: int) -> None:
        """DynamoDB collects them by their `ttl`; until then the conditions see that they ended."""

    async def everything(self) -> AsyncIterator[Sequence[Sandbox]]:
        for status in Status:
            async for items in self._pages(status):
                yield [sandbox_of(item) for item in items]

    async def audit(self) -> AsyncIterator[Sequence[Sandbox | HeldLease | Tombstone]]:
        async for items in self._table.scan():
            yield [entry for item in items if (entry := entry_of(item)) is not None]

    async def page(self, *, status: Status | None, limit: int, cursor: str | None) -> Page[Sandbox]:
        listing = f"sandboxes {status or 'all'}"
        states = [status] if status else list(Status)
        place, start = 0, None
        if cursor is not None:
            place, start = _position(decode_cursor(listing, cursor), len(states))
        found: list[Sandbox] = []
        while place < len(states):
            items, following, _ = await self._query(states[place], limit - len(found), start)
            found += [sandbox_of(item) for item in items]
            start = following
            if following is None:
                place += 1
            if len(found) == limit:
                break
        if place == len(states) or not await self._has_more(states[place:], start):
            return Page(found, None)
        return Page(found, encode_cursor(listing, [place, start]))

    async def _has_more(self, states: Sequence[Status], start: Item | None) -> bool:
        for status in states:
            items, _, _ = await self._query(status, 1, start)
            if items:
                return True
            start = None
        return False

    async def overdue(
        self, *, ended_by: int, limit: int, after: Sandbox | None
    ) -> Sequence[Sandbox]:
        def is_due(row: Sandbox) -> bool:
            return row.expires_at is not None and row.expires_at <= ended_by

        return await self._due(Status.ALLOCATED, is_due, limit, after, allocated_by=ended_by)

    async def deletable(self, *, now: int, limit: int, after: Sandbox | None) -> Sequence[Sandbox]:
        def is_due(row: Sandbox) -> bool:
            return row.next_attempt_at is None or row.next_attempt_at <= now

        return await self._due(Status.PENDING_DELETION, is_due, limit, after)

    async def _due(
        self,
        status: Status,
        is_due: Callable[[Sandbox], bool],
        limit: int,
        after: Sandbox | None,
        *,
        allocated_by: int | None = None,
    ) -> Sequence[Sandbox]:
        """Rows that the index shows in this state and that are due, as they were last written."""
        found: list[Sandbox] = []
        start = None if after is None else index_key(after, status)
        async for items in self._pages(status, start=start, allocated_by=allocated_by):
            due = [row for row in map(sandbox_of, items) if is_due(row)]
            fresh = await self._table.get_many([sandbox_key(row.sandbox_id) for row in due])
            rows = {item["sandbox_id"]: sandbox_of(item) for item in fresh}
            for old in due:
                row = rows.get(old.sandbox_id)
                if row is not None and row.status is status and is_due(row):
                    found.append(row)
            if len(found) >= limit:
                break
        return found[:limit]

    async def counts(self) -> Mapping[Status, int]:
        """As last taken, by whichever replica found them too old; at most a quarter minute ago."""
        now = self._clock.now()
        stored = await self._table.get(_COUNTS_KEY)
        if stored is None or stored.get("taken_at", 0) + self._counts_age_sec <= now:
            stored = await self._take_counts(now) or stored
        counts = (stored or {}).get("counts", {})
        return {status: int(counts.get(str(status), 0)) for status in Status}

    async def _take_counts(self, now: float) -> Item | None:
        """Count by the index, unless another replica is just doing it."""
        write_id = new_write_id()
        try:
            await self._table.update(
                _COUNTS_KEY,
                "SET counting_until = :until, write_id = :write_id",
                {"now": now, "until": now + self._counts_age_sec, "write_id": write_id},
                condition="attribute_not_exists(counting_until) OR counting_until <= :now",
            )
        except ConditionFailedError as refused:
            counted_before = "counts" in (refused.item or {})
            if counted_before and not _wrote(write_id, refused.item):
                return None
        counts = {str(status): await self._count(status) for status in Status}
        item: Item = {**_COUNTS_KEY, "taken_at": now, "counts": counts}
        await self._table.put(item)
        return item

    async def _count(self, status: Status) -> int:
        total, start = 0, None
        while True:
            _, start, count = await self._table.query(
                index=self._pool.status_index,
                condition=_IS_STATUS,
                values={"status": status},
                start=start,
                count_only=True,
            )
            total += count
            if start is None:
                return total

    async def check(self) -> None:
        if self._checked:
            await self._table.get(_COUNTS_KEY)
            return
        await self._pool.check()
        self._checked = True

    async def close(self) -> None:
        await self._table.engine.close()

    async def _query(
        self, status: Status, limit: int, start: Item | None
    ) -> tuple[list[Item], Item | None, int]:
        return await self._table.query(
            index=self._pool.status_index,
            condition=_IS_STATUS,
            values={"status": status},
            limit=limit,
            start=start,
        )

    def _pages(
        self, status: Status, *, start: Item | None = None, allocated_by: int | None = None
    ) -> AsyncIterator[list[Item]]:
        condition = _IS_STATUS
        if allocated_by is not None:
            condition += " AND allocated_at <= :by"
        return self._table.pages(
            index=self._pool.status_index,
            condition=condition,
            values={"status": status, "by": allocated_by},
            start=start,
        )

    async def _in_parallel(self, works: Sequence[Any]) -> list[Any]:
        async def one(work: Any) -> Any:
            async with self._slots:
                return await work

        outcomes = await asyncio.gather(*map(one, works), return_exceptions=True)
        for outcome in outcomes:  # all have come to their end, so nothing is written after this
            if isinstance(outcome, BaseException):
                raise outcome
        return outcomes


def _position(position: list[Any], states: int) -> tuple[int, Item | None]:
    match position:
        case [int() as place, dict() | None as start] if 0 <= place < states:
            return place, start
        case _:
            raise InvalidCursorError


def _wrote(write_id: str, item: Item | None) -> bool:
    """Whether what stands in the way of a write is that write, come before its answer was lost."""
    return item is not None and item.get("write_id") == write_id
