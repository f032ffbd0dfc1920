"""Tickets of the queue for a sandbox: their order, and how each is served or lost. No I/O."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from sandyard.broker.pool.model import (
    Claim,
    Sandbox,
    Status,
    Tombstone,
    decide_claim,
    decide_reserved,
)
from sandyard.kit.changes.transitions import DATA, Cause, Transition, changed, created, removed

QueueOrder = tuple[int, str]
"""A ticket's place in the queue; smaller ones are served first."""

URGENCY = 3
"""The default; 0 is served first and 7 last, as in RFC 9218."""
ABANDONED = "its holder stopped polling"
LEFT = "left by its track"
LEASED = "its track has a lease"
DROPPED = "dropped by an operator"


@dataclass(frozen=True, slots=True)
class Ticket:
    """A track's place in the queue; a track and key have at most one."""

    SUBJECT: ClassVar[str] = "ticket_id"
    OWNER: ClassVar[str | None] = None

    ticket_id: str
    """Sorts by time: with equal urgency, smaller ones are served first."""
    track_id: str
    key: str
    urgency: int
    created_at: int
    name_prefix: str = ""
    sandbox_id: str | None = None
    """The sandbox that is reserved for it; None while it waits."""
    asked_at: int = field(default=0, metadata=DATA)
    client: str | None = None
    """The named client through which its track called."""
    sequence: int = 0

    @property
    def lease_key(self) -> tuple[str, str]:
        return self.track_id, self.key

    @property
    def queue_order(self) -> QueueOrder:
        return self.urgency, self.ticket_id

    def is_abandoned(self, *, ttl_sec: float, now: int) -> bool:
        return self.asked_at + ttl_sec <= now

    def wants(self, row: Sandbox) -> bool:
        return self.sandbox_id is None and row.name.startswith(self.name_prefix)

    def has(self, row: Sandbox | Tombstone | None) -> bool:
        return isinstance(row, Sandbox) and row.reserved_for == self.ticket_id


def decide_queued(claim: Claim, *, ticket_id: str, urgency: int) -> Transition[Ticket]:
    """A ticket at the end of the queue, for a claim that found no free sandbox."""
    ticket = Ticket(
        ticket_id=ticket_id,
        track_id=claim.track_id,
        key=claim.key,
        urgency=urgency,
        created_at=claim.now,
        name_prefix=claim.name_prefix,
        client=claim.client,
        asked_at=claim.now,
    )
    return created(ticket, "ticket.created", claim.cause)


def decide_ready(
    ticket: Ticket, free: Sandbox, cause: Cause, *, reservation_id: str | None = None
) -> tuple[Transition[Sandbox], Transition[Ticket]]:
    """Reserve a free sandbox for the next ticket; it counts for the ticket's reservation."""
    reserved = decide_reserved(free, ticket.ticket_id, cause, reservation_id=reservation_id)
    after = replace(ticket, sandbox_id=free.sandbox_id)
    return reserved, changed(ticket, after, "ticket.ready", cause)


def decide_waiting(ticket: Ticket, cause: Cause) -> Transition[Ticket]:
    """The sandbox reserved for it is gone or broken: it waits again, in the same position."""
    return changed(ticket, replace(ticket, sandbox_id=None), "ticket.waiting", cause)


def decide_served(
    ticket: Ticket, reserved: Sandbox, claim: Claim
) -> tuple[Transition[Sandbox], Transition[Ticket]]:
    return decide_claim(reserved, claim), removed(ticket, "ticket.served", claim.cause)


def decide_moved(ticket: Ticket, urgency: int, cause: Cause) -> Transition[Ticket] | None:
    """None if it has this urgency."""
    if ticket.urgency == urgency:
        return None
    return changed(ticket, replace(ticket, urgency=urgency), "ticket.moved", cause)


def decide_dropped(ticket: Ticket, cause: Cause) -> Transition[Ticket]:
    return removed(ticket, "ticket.dropped", cause)


def first_who_wants(row: Sandbox, tickets: Iterable[Ticket]) -> Ticket | None:
    return next((each for each in tickets if each.wants(row)), None)


def becomes_free(transition: Transition[Sandbox]) -> bool:
    return transition.after is not None and transition.after.status is Status.AVAILABLE
