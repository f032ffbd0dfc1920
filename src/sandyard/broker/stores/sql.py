"""The pool on SQLite or PostgreSQL.

The lease is the row itself: while it is `allocated`, a unique index over (track, key) holds it, so
row and lease cannot come apart. Concurrent claims travel together: one transaction finds their
leases, picks their sandboxes and commits once.
"""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sandyard.broker.errors import RowBusyError
from sandyard.broker.model import (
    GUARDED,
    Change,
    Claim,
    Claimed,
    Lease,
    Sandbox,
    StaleReason,
    Status,
    Tombstone,
    lab_seconds,
)
from sandyard.broker.stores.tables import DELETED, SCHEMA, has_status, sandboxes, tally
from sandyard.kit.batching import Batcher
from sandyard.kit.migrations import Migrations
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor
from sandyard.kit.sql import Database, insert_or_ignore

MIGRATIONS = Migrations(SCHEMA, Path(__file__).parent / "migrations")

_PAGE = 1000
_CHUNK = 200
_LARGEST_BATCH = 64
_PARALLEL_BATCHES = 4
_ATTEMPTS = 10
_TALLY_LINES = 500

_column = sandboxes.c
_FIELDS = tuple(Sandbox.__dataclass_fields__)


class SqlPoolStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema_checked = False
        self._claims: Batcher[Claim, Claimed | None] = Batcher(
            self._claim_together,
            key=lambda claim: claim.lease_key,
            parallel=_PARALLEL_BATCHES if database.concurrent_writers else 1,
            max_size=_LARGEST_BATCH,
        )

    async def claim(self, claim: Claim) -> Claimed | None:
        return await self._claims.submit(claim)

    async def _claim_together(self, claims: Sequence[Claim]) -> Sequence[Claimed | None]:
        results = list(await self._claim_once(claims, wait_for_locked=False))
        left = [index for index, result in enumerate(results) if result is None]
        if left and self._database.concurrent_writers:
            # Other transactions may hold rows that they will not keep: wait for them, holding
            # nothing, before saying that the pool is empty.
            confirmed = await self._claim_once([claims[i] for i in left], wait_for_locked=True)
            for index, result in zip(left, confirmed, strict=True):
                results[index] = result
        return results

    async def _claim_once(
        self, claims: Sequence[Claim], *, wait_for_locked: bool
    ) -> Sequence[Claimed | None]:
        for _ in range(_ATTEMPTS):
            try:
                return await self._database.write(
                    lambda connection: _claim_batch(connection, claims, wait_for_locked)
                )
            except IntegrityError:
                continue  # another process leased one of these keys meanwhile; now it is found
        raise RowBusyError

    async def find(self, sandbox_id: str) -> Sandbox | Tombstone | None:
        statement = sa.select(sandboxes).where(_column.sandbox_id == sandbox_id)
        row = await self._database.read(lambda connection: connection.execute(statement).first())
        return None if row is None else _entry(row)

    async def apply(self, changes: Sequence[Change]) -> Sequence[bool]:
        applied: dict[str, bool] = {}
        in_lock_order = sorted(changes, key=lambda c: (c.before.name, c.before.sandbox_id))
        for chunk in _chunks(in_lock_order):
            applied |= await self._database.write(partial(_apply_chunk, changes=chunk))
        return [applied[change.before.sandbox_id] for change in changes]

    async def bury(self, sandbox: Sandbox, tombstone: Tombstone) -> bool:
        statement = (
            sandboxes.update()
            .where(*_unchanged(sandbox))
            .values(
                status=DELETED,
                deleted_at=tombstone.deleted_at,
                kept_until=tombstone.kept_until,
                updated_at=tombstone.deleted_at,
            )
        )

        def work(connection: sa.Connection) -> bool:
            buried = connection.execute(statement).rowcount == 1
            if buried:
                _count(connection, {sandbox.status: -1})
            return buried

        return await self._database.write(work)

    async def add(self, new: Sequence[Sandbox]) -> int:
        added = 0
        for chunk in _chunks(new):
            added += await self._database.write(partial(_add_chunk, new=chunk))
        return added

    async def confirm_listed(self, sandbox_ids: Sequence[str], *, now: int) -> None:
        for chunk in _chunks(sandbox_ids):
            await self._execute(
                sandboxes.update()
                .where(
                    _column.sandbox_id.in_(chunk),
                    _column.status.in_([Status.AVAILABLE, Status.STALE]),
                )
                .values(last_synced=now)
            )

    async def renew_tombstones(self, sandbox_ids: Sequence[str], *, kept_until: int) -> None:
        for chunk in _chunks(sandbox_ids):
            await self._execute(
                sandboxes.update()
                .where(_column.sandbox_id.in_(chunk), has_status(DELETED))
                .values(kept_until=kept_until)
            )

    async def drop_tombstones(self, *, now: int) -> None:
        await self._execute(
            sandboxes.delete().where(has_status(DELETED), _column.kept_until <= now)
        )

    async def everything(self) -> AsyncIterator[Sequence[Sandbox | Tombstone]]:
        last = ""
        while True:
            statement = (
                sa.select(sandboxes)
                .where(_column.sandbox_id > last)
                .order_by(_column.sandbox_id)
                .limit(_PAGE)
            )
            rows = await self._rows(statement)
            if not rows:
                return
            last = rows[-1].sandbox_id
            yield [_entry(row) for row in rows]

    async def page(self, *, status: Status | None, limit: int, cursor: str | None) -> Page[Sandbox]:
        listing = f"sandboxes {status or 'all'}"
        order = (_column.name, _column.sandbox_id) if status else (_column.sandbox_id,)
        statement = sa.select(sandboxes).where(
            has_status(status) if status else _column.status != DELETED
        )
        if cursor is not None:
            position = decode_cursor(listing, cursor)
            if len(position) != len(order) or not all(isinstance(p, str) for p in position):
                raise InvalidCursorError
            statement = statement.where(sa.tuple_(*order) > sa.tuple_(*position))
        rows = await self._rows(statement.order_by(*order).limit(limit + 1))
        found = [_sandbox(row) for row in rows[:limit]]
        if len(rows) <= limit:
            return Page(found, None)
        last = [getattr(found[-1], column.name) for column in order]
        return Page(found, encode_cursor(listing, last))

    async def overdue(
        self, *, ended_by: int, limit: int, after: Sandbox | None
    ) -> Sequence[Sandbox]:
        last = None if after is None else (after.expires_at, after.sandbox_id)
        return await self._due(Status.ALLOCATED, _column.expires_at, ended_by, limit, last)

    async def deletable(self, *, now: int, limit: int, after: Sandbox | None) -> Sequence[Sandbox]:
        last = None if after is None else (after.next_attempt_at, after.sandbox_id)
        return await self._due(Status.PENDING_DELETION, _column.next_attempt_at, now, limit, last)

    async def _due(
        self,
        status: Status,
        moment: sa.ColumnElement[int],
        until: int,
        limit: int,
        last: tuple[int | None, str] | None,
    ) -> Sequence[Sandbox]:
        statement = sa.select(sandboxes).where(has_status(status), moment <= until)
        if last is not None:
            statement = statement.where(sa.tuple_(moment, _column.sandbox_id) > sa.tuple_(*last))
        rows = await self._rows(statement.order_by(moment, _column.sandbox_id).limit(limit))
        return [_sandbox(row) for row in rows]

    async def counts(self) -> Mapping[Status, int]:
        statement = sa.select(
            tally.c.status, sa.func.sum(tally.c.change), sa.func.count()
        ).group_by(tally.c.status)
        rows = await self._rows(statement)
        if sum(lines for _, _, lines in rows) > _TALLY_LINES:
            await self._database.write(_fold_tally)
        sums = {status: int(total) for status, total, _ in rows}
        return {status: sums.get(status, 0) for status in Status}

    async def check(self) -> None:
        await self._database.check()
        if not self._schema_checked:
            await MIGRATIONS.require_head(self._database)
            self._schema_checked = True

    async def close(self) -> None:
        await self._database.close()

    async def _rows(self, statement: sa.Select[Any]) -> Sequence[Any]:
        return await self._database.read(lambda connection: connection.execute(statement).all())

    async def _execute(self, statement: sa.Executable) -> None:
        await self._database.write(lambda connection: connection.execute(statement))


def _claim_batch(
    connection: sa.Connection, claims: Sequence[Claim], wait_for_locked: bool
) -> list[Claimed | None]:
    held = _find_leases(connection, claims)
    results = [_repeat(claim, held) for claim in claims]
    wanting: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, claim in enumerate(claims):
        if results[index] is None:
            wanting[claim.lease_key].append(index)
    first = [claims[indexes[0]] for indexes in wanting.values()]
    for key, lease in _lease_free_rows(connection, first, held, wait_for_locked).items():
        for index in wanting[key]:
            results[index] = Claimed(lease, is_new=index == wanting[key][0])
    if wait_for_locked and None in results:
        # Whoever was waited for may have leased the last row to the very same key.
        held = _find_leases(connection, claims)
        results = [
            result or _repeat(claim, held) for claim, result in zip(claims, results, strict=True)
        ]
    return results


def _repeat(claim: Claim, held: Mapping[tuple[str, str], Any]) -> Claimed | None:
    row = held.get(claim.lease_key)
    if row is None or claim.now >= row.expires_at:
        return None
    return Claimed(_lease(row), is_new=False)


def _find_leases(connection: sa.Connection, claims: Sequence[Claim]) -> dict[tuple[str, str], Any]:
    wanted = orjson.dumps(list({claim.lease_key for claim in claims})).decode()
    rows = connection.execute(_FIND_LEASES[connection.dialect.name], {"keys": wanted})
    found = (row for row in rows if row.sandbox_id is not None)
    return {(row.allocated_to_track, row.idempotency_key): row for row in found}


def _lease_free_rows(
    connection: sa.Connection,
    claims: Sequence[Claim],
    held: Mapping[tuple[str, str], Any],
    wait_for_locked: bool,
) -> dict[tuple[str, str], Lease]:
    """Lease a free row to each claim as far as they go, and end the leases those had before."""
    by_prefix: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_prefix[claim.name_prefix].append(claim)
    leases: dict[tuple[str, str], Lease] = {}
    updates: list[dict[str, Any]] = []
    taken: list[str] = []
    for prefix in sorted(by_prefix, key=len, reverse=True):  # the choosier first
        wishes = by_prefix[prefix]
        rows = _free_rows(connection, prefix, len(wishes), taken, wait_for_locked)
        for claim, row in zip(wishes, rows, strict=False):
            taken.append(row.sandbox_id)
            end = claim.now + lab_seconds(row.lab_duration_hours)
            leases[claim.lease_key] = Lease(
                row.sandbox_id, row.name, row.external_id, claim.now, end
            )
            updates.append(_claim_parameters(claim, row.sandbox_id, end))
            _end_expired(connection, held.get(claim.lease_key), claim.now)
    if updates:
        updates.sort(key=lambda update: (update["track"], update["key"]))  # one order of locking
        connection.execute(_CLAIM, updates)
        _count(connection, {Status.AVAILABLE: -len(updates), Status.ALLOCATED: len(updates)})
    return leases


def _free_rows(
    connection: sa.Connection,
    prefix: str,
    limit: int,
    taken: Sequence[str],
    wait_for_locked: bool,
) -> Sequence[Any]:
    statement = _FREE if wait_for_locked else _FREE_UNLOCKED
    if prefix:
        statement = statement.where(_column.name >= prefix, _column.name < _after(prefix))
    if taken:
        statement = statement.where(_column.sandbox_id.not_in(taken))
    return connection.execute(statement.limit(limit)).all()


def _after(prefix: str) -> str:
    """The least string that is greater than all that begin with `prefix`."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _end_expired(connection: sa.Connection, row: Any, now: int) -> None:
    if row is None:
        return
    expired = _sandbox(row)
    _apply_chunk(connection, [Change(expired, expired.sent_to_deletion(now))])


def _apply_chunk(connection: sa.Connection, changes: Sequence[Change]) -> dict[str, bool]:
    outcomes: dict[str, bool] = {}
    moved: Counter[str] = Counter()
    for change in changes:
        before, after = change.before, change.after
        done = connection.execute(
            sandboxes.update().where(*_unchanged(before)).values(_values(after))
        )
        outcomes[before.sandbox_id] = done.rowcount == 1
        if done.rowcount == 1 and before.status != after.status:
            moved[before.status] -= 1
            moved[after.status] += 1
    _count(connection, moved)
    return outcomes


def _add_chunk(connection: sa.Connection, new: Sequence[Sandbox]) -> int:
    inserted = connection.execute(
        insert_or_ignore(connection, sandboxes).returning(_column.status),
        [_values(sandbox) for sandbox in new],
    )
    added = Counter(row.status for row in inserted)
    _count(connection, added)
    return added.total()


def _unchanged(before: Sandbox) -> list[sa.ColumnElement[bool]]:
    guards = [_column[name].is_not_distinct_from(getattr(before, name)) for name in GUARDED]
    return [_column.sandbox_id == before.sandbox_id, *guards]


def _count(connection: sa.Connection, changes: Mapping[str, int]) -> None:
    lines = [{"status": str(status), "change": n} for status, n in changes.items() if n]
    if lines:
        connection.execute(tally.insert(), lines)


def _fold_tally(connection: sa.Connection) -> None:
    """Replace the oldest lines by their sums; whoever deletes a line is the one who adds it up."""
    oldest = sa.select(tally.c.id).order_by(tally.c.id).limit(20 * _TALLY_LINES)
    lines = connection.execute(
        tally.delete().where(tally.c.id.in_(oldest)).returning(tally.c.status, tally.c.change)
    )
    sums: Counter[str] = Counter()
    for status, change in lines:
        sums[status] += change
    _count(connection, sums)


def _entry(row: Any) -> Sandbox | Tombstone:
    if row.status != DELETED:
        return _sandbox(row)
    return Tombstone(
        sandbox_id=row.sandbox_id,
        external_id=row.external_id,
        allocated_to_track=row.allocated_to_track,
        deletion_requested_at=row.deletion_requested_at,
        deleted_at=row.deleted_at,
        kept_until=row.kept_until,
    )


def _sandbox(row: Any) -> Sandbox:
    values = {name: getattr(row, name) for name in _FIELDS}
    values["status"] = Status(row.status)
    values["stale_reason"] = StaleReason(row.stale_reason) if row.stale_reason else None
    return Sandbox(**values)


def _lease(row: Any) -> Lease:
    return Lease(row.sandbox_id, row.name, row.external_id, row.allocated_at, row.expires_at)


def _values(sandbox: Sandbox) -> dict[str, Any]:
    return asdict(sandbox) | {"expires_at": sandbox.expires_at}


def _claim_parameters(claim: Claim, sandbox_id: str, expires_at: int) -> dict[str, Any]:
    return {
        "id": sandbox_id,
        "track": claim.track_id,
        "key": claim.key,
        "label": claim.track_name,
        "now": claim.now,
        "end": expires_at,
    }


def _chunks(items: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))


_FREE = (
    sa.select(_column.sandbox_id, _column.name, _column.external_id, _column.lab_duration_hours)
    .where(has_status(Status.AVAILABLE))
    .order_by(_column.name, _column.sandbox_id)
    .with_for_update()
)
_FREE_UNLOCKED = _FREE.with_for_update(skip_locked=True)

_CLAIM = (
    sandboxes.update()
    .where(_column.sandbox_id == sa.bindparam("id"))
    .values(
        status=Status.ALLOCATED,
        allocated_to_track=sa.bindparam("track"),
        idempotency_key=sa.bindparam("key"),
        track_name=sa.bindparam("label"),
        allocated_at=sa.bindparam("now"),
        updated_at=sa.bindparam("now"),
        expires_at=sa.bindparam("end"),
    )
)


def _leases_of(track: sa.ColumnElement[str], key: sa.ColumnElement[str], keys: Any) -> Any:
    """The leases of all keys at once, each found through the unique index.

    The outer join makes SQLite go from key to lease; left to itself it reads every lease.
    """
    return sa.select(sandboxes).select_from(
        keys.outerjoin(
            sandboxes,
            sa.and_(
                has_status(Status.ALLOCATED),
                _column.allocated_to_track == track,
                _column.idempotency_key == key,
            ),
        )
    )


def _find_leases_statements() -> dict[str, Any]:
    keys = sa.bindparam("keys", type_=sa.Text)
    lite = sa.func.json_each(keys).table_valued("value", name="wanted")
    post = sa.func.json_array_elements(sa.cast(keys, sa.JSON)).table_valued("value", name="wanted")
    return {
        "sqlite": _leases_of(
            sa.func.json_extract(lite.c.value, "$[0]"),
            sa.func.json_extract(lite.c.value, "$[1]"),
            lite,
        ),
        "postgresql": _leases_of(
            post.c.value.op("->>")(sa.literal_column("0")),
            post.c.value.op("->>")(sa.literal_column("1")),
            post,
        ),
    }


_FIND_LEASES = _find_leases_statements()
