"""The pool's entities as DynamoDB items."""

from dataclasses import asdict, fields

from sandyard.broker.pool.model import HeldLease, Lease, Sandbox, StaleReason, Status, Tombstone
from sandyard.kit.dynamo.values import Item

SANDBOX_FIELDS = tuple(each.name for each in fields(Sandbox))


def sandbox_key(sandbox_id: str) -> Item:
    return {"PK": f"SBX#{sandbox_id}", "SK": "META"}


def gone_key(sandbox_id: str) -> Item:
    return {"PK": f"GONE#{sandbox_id}", "SK": "META"}


def lease_key(track_id: str, key: str) -> Item:
    """Unambiguous, because a track id has no `#`."""
    return {"PK": f"LEASE#{track_id}#{key}", "SK": "META"}


def sandbox_item(sandbox: Sandbox) -> Item:
    return sandbox_key(sandbox.sandbox_id) | sandbox_attributes(sandbox)


def sandbox_attributes(sandbox: Sandbox) -> Item:
    return {name: getattr(sandbox, name) for name in SANDBOX_FIELDS}


def sandbox_of(item: Item) -> Sandbox:
    values = {name: item[name] for name in SANDBOX_FIELDS if name in item}
    reason = item.get("stale_reason")
    values["status"] = Status(item["status"])
    values["stale_reason"] = StaleReason(reason) if reason else None
    values["lab_duration_hours"] = float(item["lab_duration_hours"])
    return Sandbox(**values)


def lease_item(track_id: str, key: str, lease: Lease) -> Item:
    """It has no index keys. Its `ttl` is long after any use, for garbage collection only."""
    return lease_key(track_id, key) | {
        "sandbox_id": lease.sandbox_id,
        "sandbox_name": lease.name,
        "external_id": lease.external_id,
        "leased_at": lease.allocated_at,
        "expires_at": lease.expires_at,
        "ttl": lease.collected_at,
    }


def lease_of(item: Item) -> Lease:
    return Lease(
        item["sandbox_id"],
        item["sandbox_name"],
        item["external_id"],
        item["leased_at"],
        item["expires_at"],
    )


def tombstone_item(tombstone: Tombstone) -> Item:
    item = gone_key(tombstone.sandbox_id) | asdict(tombstone) | {"ttl": tombstone.kept_until}
    item["owner"] = item.pop("allocated_to_track")  # an index key, which only sandboxes have
    return item


def tombstone_of(item: Item) -> Tombstone:
    return Tombstone(
        sandbox_id=item["sandbox_id"],
        external_id=item["external_id"],
        allocated_to_track=item.get("owner"),
        deletion_requested_at=item.get("deletion_requested_at"),
        deleted_at=item["deleted_at"],
        kept_until=item["kept_until"],
        replaced_by=item.get("replaced_by"),
        sequence=item["sequence"],
    )


def entry_of(item: Item) -> Sandbox | HeldLease | Tombstone | None:
    """The pool's entry in this item; None for the store's internal items."""
    kind, _, rest = item["PK"].partition("#")
    match kind:
        case "SBX":
            return sandbox_of(item)
        case "LEASE":
            track_id, _, key = rest.partition("#")
            return HeldLease(track_id, key, lease_of(item))
        case "GONE":
            return tombstone_of(item)
        case _:
            return None
