"""What the Broker needs from the outside, as promises."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from sandyard.broker.model import (
    Change,
    Claim,
    Claimed,
    HeldLease,
    Lease,
    Listed,
    Sandbox,
    Status,
    Tombstone,
)
from sandyard.kit.paging import Page


class PoolStore(Protocol):
    """The pool, on an engine that many processes may share.

    On every engine, at every instant: a row is `allocated` exactly while its lease exists, no
    sandbox has two leases, and no (track, key) has two. What a method has returned is durable.
    Every method raises UnavailableError, and has changed nothing or all, when the engine is away;
    an engine that is away is never reported as an empty pool or as an unknown sandbox.
    """

    async def claim(self, claim: Claim) -> Claimed | None:
        """Lease a free sandbox to (track, key), or find the lease that they have.

        - A lease that is live at `claim.now` is returned as it is, with `is_new` False; also when
          the pool is empty.
        - A lease that is past its end is ended in the write that makes the new one: its sandbox
          goes to `pending_deletion`.
        - Otherwise one sandbox whose name begins with `claim.name_prefix` and that is `available`
          becomes `allocated` to this claim alone.
        - None only if there was no such sandbox: neither contention nor a lock held by another
          claim counts as an empty pool.
        """
        ...

    async def find(self, sandbox_id: str) -> Sandbox | Tombstone | None:
        """The row or what is left of it, as last committed."""
        ...

    async def find_lease(self, track_id: str, key: str) -> Lease | None:
        """The lease of this track and key, live or past its end, as last committed."""
        ...

    async def apply(self, changes: Sequence[Change]) -> Sequence[bool]:
        """Apply each change whose row still equals `before` in `model.GUARDED`; say which did.

        Leaving `allocated` ends the lease in the same write. A change that lost changes nothing.
        """
        ...

    async def bury(self, sandbox: Sandbox, tombstone: Tombstone) -> bool:
        """Remove the row and leave the tombstone, in one write, if it still equals `sandbox`."""
        ...

    async def add(self, sandboxes: Sequence[Sandbox]) -> int:
        """Insert the rows whose ids are neither known nor buried; say how many those were."""
        ...

    async def confirm_listed(self, sandbox_ids: Sequence[str], *, now: int) -> None:
        """Note that the provider still lists these `available` or `stale` rows."""
        ...

    async def renew_tombstones(self, sandbox_ids: Sequence[str], *, kept_until: int) -> None: ...

    async def drop_tombstones(self, *, now: int) -> None:
        """Forget the tombstones whose time is over."""
        ...

    async def buried(self, sandbox_ids: Sequence[str]) -> set[str]:
        """Those of the ids that have a tombstone."""
        ...

    def everything(self) -> AsyncIterator[Sequence[Sandbox]]:
        """All rows, in pages. Only for `sync`."""
        ...

    def audit(self) -> AsyncIterator[Sequence[Sandbox | HeldLease | Tombstone]]:
        """All that is stored, as last written, in pages. Only for `verification`."""
        ...

    async def page(
        self, *, status: Status | None, limit: int, cursor: str | None
    ) -> Page[Sandbox]: ...

    async def overdue(
        self, *, ended_by: int, limit: int, after: Sandbox | None
    ) -> Sequence[Sandbox]:
        """Allocated rows that end at `ended_by` or before, in a fixed order, past `after`."""
        ...

    async def deletable(self, *, now: int, limit: int, after: Sandbox | None) -> Sequence[Sandbox]:
        """Rows in `pending_deletion` whose next attempt is due, in a fixed order, past `after`."""
        ...

    async def counts(self) -> Mapping[Status, int]:
        """How many rows are in each state, now or a quarter of a minute ago."""
        ...

    async def check(self) -> None:
        """Return if the engine answers and holds the schema that this code needs."""
        ...

    async def close(self) -> None: ...


class Provider(Protocol):
    """The cloud that owns the sandboxes.

    Raises ProviderUnavailableError when it does not answer as it should, and CircuitOpenError,
    without having asked, while it is being left alone.
    """

    async def list_sandboxes(self) -> Sequence[Listed]:
        """All of them, or an error: never a part of the list."""
        ...

    async def delete_sandbox(self, external_id: str) -> None:
        """Return when it is gone, by this call or before it."""
        ...

    async def close(self) -> None: ...
