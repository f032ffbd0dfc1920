"""Claims in SQL: one transaction for as many as wait."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import orjson
import sqlalchemy as sa

from sandyard.broker.model import (
    Claim,
    Claimed,
    Lease,
    Sandbox,
    Status,
    decide_claim,
    decide_superseded,
)
from sandyard.broker.stores.sql_pages import past
from sandyard.broker.stores.sql_rows import (
    EVENTS,
    apply_transitions,
    count,
    lease_of,
    sandbox_of,
)
from sandyard.broker.stores.tables import sandboxes
from sandyard.kit.events import Event
from sandyard.kit.sql import Prepared

_column = sandboxes.c


def claim_batch(
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
    if row is None or claim.now >= row.lease_ends_at:
        return None
    return Claimed(lease_of(row), is_new=False)


def _find_leases(connection: sa.Connection, claims: Sequence[Claim]) -> dict[tuple[str, str], Any]:
    wanted = orjson.dumps(list({claim.lease_key for claim in claims})).decode()
    rows = _FIND_LEASES[connection.dialect.name].execute(connection, {"keys": wanted})
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
    events: list[Event] = []
    for prefix in sorted(by_prefix, key=len, reverse=True):  # the choosier first
        alike = by_prefix[prefix]
        updates: list[dict[str, Any]] = []
        rows = _free_rows(connection, prefix, len(alike), wait_for_locked)
        for claim, row in zip(alike, rows, strict=False):
            _end_expired(connection, held.get(claim.lease_key), claim)
            claimed = decide_claim(_free_sandbox(row), claim)
            lease = leases[claim.lease_key] = claimed.result.lease
            updates.append(_claim_parameters(claimed.result, lease))
            events += claimed.events
        if updates:
            updates.sort(key=lambda update: (update["track"], update["key"]))  # one lock order
            _CLAIM.execute(connection, *updates)
    if leases:
        EVENTS.write(connection, events)
        count(connection, {Status.AVAILABLE: -len(leases), Status.ALLOCATED: len(leases)})
    return leases


def _free_rows(
    connection: sa.Connection, prefix: str, limit: int, wait_for_locked: bool
) -> Sequence[Any]:
    if not prefix:
        statement = _FREE if wait_for_locked else _FREE_UNLOCKED
        return statement.execute(connection, {"limit": limit}).all()
    statement = _FREE_NAMED if wait_for_locked else _FREE_NAMED_UNLOCKED
    names = {"prefix": prefix, "past": past(prefix), "limit": limit}
    return statement.execute(connection, names).all()


def _free_sandbox(row: Any) -> Sandbox:
    """The row has the fields in their order; free ones have no other status and no stale reason."""
    sandbox_id, name, external_id, _, *others = row
    return Sandbox(sandbox_id, name, external_id, Status.AVAILABLE, *others)


def _end_expired(connection: sa.Connection, row: Any, claim: Claim) -> None:
    ended = None if row is None else decide_superseded(sandbox_of(row), claim)
    if ended is not None:
        apply_transitions(connection, [ended])


def _claim_parameters(claimed: Sandbox, lease: Lease) -> dict[str, Any]:
    return {
        "id": claimed.sandbox_id,
        "track": claimed.allocated_to_track,
        "key": claimed.idempotency_key,
        "label": claimed.track_name,
        "allocated_at": claimed.allocated_at,
        "updated_at": claimed.updated_at,
        "end": lease.expires_at,
        "sequence": claimed.sequence,
    }


_free = (
    sa.select(*(_column[each.name] for each in fields(Sandbox)))
    .where(_column.status == sa.literal_column("'available'"))
    .order_by(_column.name, _column.sandbox_id)
    .limit(sa.bindparam("limit"))
    .with_for_update()
)
_free_named = _free.where(
    _column.name >= sa.bindparam("prefix"), _column.name < sa.bindparam("past")
)
_FREE = Prepared(_free)
_FREE_UNLOCKED = Prepared(_free.with_for_update(skip_locked=True))
_FREE_NAMED = Prepared(_free_named)
_FREE_NAMED_UNLOCKED = Prepared(_free_named.with_for_update(skip_locked=True))

_CLAIM = Prepared(
    sandboxes.update()
    .where(_column.sandbox_id == sa.bindparam("id"))
    .values(
        status=Status.ALLOCATED,
        allocated_to_track=sa.bindparam("track"),
        idempotency_key=sa.bindparam("key"),
        lease_track=sa.bindparam("track"),
        lease_key=sa.bindparam("key"),
        track_name=sa.bindparam("label"),
        allocated_at=sa.bindparam("allocated_at"),
        updated_at=sa.bindparam("updated_at"),
        lease_ends_at=sa.bindparam("end"),
        sequence=sa.bindparam("sequence"),
    )
)


def _leases_of(track: sa.ColumnElement[str], key: sa.ColumnElement[str], keys: Any) -> Prepared:
    """The leases of all keys at once, each found through the unique index.

    The outer join makes SQLite go from key to lease; left to itself it reads every lease.
    """
    same = sa.and_(_column.lease_track == track, _column.lease_key == key)
    return Prepared(sa.select(sandboxes).select_from(keys.outerjoin(sandboxes, same)))


def _find_leases_statements() -> dict[str, Prepared]:
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
