"""Claims in SQL: one transaction for all that wait, with one statement that reads and one that
writes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import orjson
import sqlalchemy as sa

from sandyard.broker.pool.model import (
    Claim,
    Claimed,
    Lease,
    Sandbox,
    Status,
    decide_claim,
    decide_superseded,
)
from sandyard.broker.pool.stores import sql_rows
from sandyard.broker.pool.stores.sql_claim_statements import lease_decided
from sandyard.broker.pool.stores.sql_pages import past
from sandyard.broker.stores.tables import sandboxes
from sandyard.kit.sql.batches import Prepared
from sandyard.kit.sql.transitions import StaleTransitionError

_column = sandboxes.c
_READ = [_column[name] for name in sql_rows.FIELDS]
LeaseKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """Which rows may be leased: those reserved for a reservation, or else the available ones."""

    name_prefix: str = ""
    reservation_id: str | None = None
    wait_for_locked: bool = False

    @property
    def status(self) -> Status:
        return Status.AVAILABLE if self.reservation_id is None else Status.RESERVED


def claim_batch(
    connection: sa.Connection, claims: Sequence[Claim], source: Source
) -> list[Claimed | None]:
    """A lease for each claim, as far as the source has rows; None for the others."""
    held, free = _read_leases_and_free_rows(connection, claims, source)
    results = [_repeat(claim, held) for claim in claims]
    wanting: dict[LeaseKey, list[int]] = defaultdict(list)
    for index, claim in enumerate(claims):
        if results[index] is None:
            wanting[claim.lease_key].append(index)
    first = [claims[indexes[0]] for indexes in wanting.values()]
    for key, lease in _lease_rows(connection, free, first, held, source).items():
        for index in wanting[key]:
            results[index] = Claimed(lease, is_new=index == wanting[key][0])
    if source.wait_for_locked and None in results:
        # The transaction that was waited for may have leased the last row to the same key.
        held = _find_leases(connection, claims)
        results = [
            result or _repeat(claim, held) for claim, result in zip(claims, results, strict=True)
        ]
    return results


def _repeat(claim: Claim, held: Mapping[LeaseKey, Sandbox]) -> Claimed | None:
    leased = held.get(claim.lease_key)
    lease = None if leased is None else leased.lease
    return Claimed(lease, is_new=False) if lease and lease.is_live(claim.now) else None


def _read_leases_and_free_rows(
    connection: sa.Connection, claims: Sequence[Claim], source: Source
) -> tuple[dict[LeaseKey, Sandbox], list[Sandbox]]:
    """The existing leases of the claims' keys, and a free row for each key without a live one."""
    keys = {claim.lease_key for claim in claims}
    values: dict[str, Any] = {
        "keys": orjson.dumps(list(keys)).decode(),
        "limit": len(keys),
        "now": max(claim.now for claim in claims),
    }
    if source.name_prefix:
        values |= {"prefix": source.name_prefix, "past": past(source.name_prefix)}
    if source.reservation_id is not None:
        values["holder"] = source.reservation_id
    statement = _leases_and_free_rows(
        connection.dialect.name,
        by_name=bool(source.name_prefix),
        is_reserved=source.reservation_id is not None,
        waits=source.wait_for_locked,
    )
    rows = [sql_rows.read_sandbox(row) for row in statement.execute(connection, values).fetchall()]
    held = _by_key([row for row in rows if row.status is Status.ALLOCATED])
    return held, [row for row in rows if row.status is not Status.ALLOCATED]


def _find_leases(connection: sa.Connection, claims: Sequence[Claim]) -> dict[LeaseKey, Sandbox]:
    keys = orjson.dumps(list({claim.lease_key for claim in claims})).decode()
    rows = _leases(connection.dialect.name).execute(connection, {"keys": keys}).fetchall()
    return _by_key([sql_rows.read_sandbox(row) for row in rows])


def _lease_rows(
    connection: sa.Connection,
    free: Sequence[Sandbox],
    claims: Sequence[Claim],
    held: Mapping[LeaseKey, Sandbox],
    source: Source,
) -> dict[LeaseKey, Lease]:
    """Lease the free rows to the first claims, and end their previous leases."""
    if not free or not claims:
        return {}
    for claim in claims[: len(free)]:
        _end_expired(connection, held.get(claim.lease_key), claim)
    # All writers lock in the order of the keys.
    served = sorted(claims[: len(free)], key=lease_key)
    decided = [decide_claim(row, claim) for claim, row in zip(served, free, strict=False)]
    if len(lease_decided(connection, decided, free=source.status)) < len(decided):
        raise StaleTransitionError  # another process has leased one of these keys
    return {claim.lease_key: each.result.lease for claim, each in zip(served, decided, strict=True)}


lease_key = attrgetter("lease_key")


def _end_expired(connection: sa.Connection, leased: Sandbox | None, claim: Claim) -> None:
    ended = None if leased is None else decide_superseded(leased, claim)
    if ended is not None:
        sql_rows.apply_transitions(connection, [ended])


def _by_key(leased: Sequence[Sandbox]) -> dict[LeaseKey, Sandbox]:
    return {(row.allocated_to_track or "", row.idempotency_key or ""): row for row in leased}


@cache
def _leases_and_free_rows(
    engine: str, *, by_name: bool, is_reserved: bool, waits: bool
) -> Prepared:
    """Leases and free rows in one statement. Only rows that will be leased are locked."""
    held = _held(engine).add_columns(_column.lease_ends_at).cte("held")
    live = sa.select(sa.func.count()).select_from(held).where(held.c.lease_ends_at > _NOW)
    free = (
        free_rows(by_name=by_name, is_reserved=is_reserved)
        .limit(sa.bindparam("limit", type_=sa.Integer) - live.scalar_subquery())
        .with_for_update(skip_locked=not waits)
        .cte("free")
    )
    leased = sa.select(*(held.c[name] for name in sql_rows.FIELDS))
    return Prepared(sa.union_all(leased, sa.select(free)))


_NOW = sa.bindparam("now", type_=sa.BigInteger)


def free_rows(*, by_name: bool, is_reserved: bool) -> sa.Select[Any]:
    """Rows that are available, or reserved for a reservation, in the order of their index."""
    free = sa.select(*_READ).order_by(_column.name, _column.sandbox_id)
    if is_reserved:
        free = free.where(_column.reserved_for == sa.bindparam("holder"))
    else:
        free = free.where(_column.status == sa.literal_column("'available'"))
    if by_name:
        names = (_column.name >= sa.bindparam("prefix"), _column.name < sa.bindparam("past"))
        free = free.where(*names)
    return free


@cache
def _leases(engine: str) -> Prepared:
    return Prepared(_held(engine))


def _held(engine: str) -> sa.Select[Any]:
    """The leases of all keys at once, each found through the unique index.

    The outer join makes SQLite go from key to lease; otherwise it reads every lease. It still would
    if it recognized the filter on keys without a lease, so a function hides that filter.
    """
    text = sa.bindparam("keys", type_=sa.Text)
    track: sa.ColumnElement[str]
    key: sa.ColumnElement[str]
    if engine == "sqlite":
        keys = sa.func.json_each(text).table_valued("value", name="wanted")
        track, key = (sa.func.json_extract(keys.c.value, path) for path in ("$[0]", "$[1]"))
    else:
        listed = sa.func.json_array_elements(sa.cast(text, sa.JSON))
        keys = listed.table_valued("value", name="wanted")
        track, key = (keys.c.value.op("->>")(sa.literal_column(each)) for each in ("0", "1"))
    same = sa.and_(_column.lease_track == track, _column.lease_key == key)
    nothing: sa.ColumnElement[str] = sa.literal_column("''")
    is_there = sa.func.coalesce(_column.sandbox_id, nothing) != nothing
    return sa.select(*_READ).select_from(keys.outerjoin(sandboxes, same)).where(is_there)
