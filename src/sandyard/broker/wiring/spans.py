"""Which ports are traced, and the names and attributes of their spans."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from sandyard.broker.pool.model import Claim, Claimed
from sandyard.kit.changes.events import Event, LoggedEvent
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.observability.tracing import About, Written

PROVIDER = About("provider", kind="client")


def _claimed(arguments: Sequence[Any], claimed: Claimed | None) -> Iterator[Written]:
    claim: Claim = arguments[0]
    if claimed is not None and claimed.is_new:
        yield Written("lease.created", (claimed.lease.sandbox_id, claim.cause.at_ms))


def _applied(arguments: Sequence[Any], outcomes: Sequence[bool]) -> Iterator[Written]:
    for transition, is_applied in zip(arguments[0], outcomes, strict=True):
        if is_applied:
            yield from _events_of(transition)


def _applied_together(
    transitions: Sequence[Transition[Any]], is_applied: bool
) -> Iterator[Written]:
    for transition in transitions if is_applied else ():
        yield from _events_of(transition)


def _events_of(transition: Transition[Any]) -> Iterator[Written]:
    for event in transition.events:
        yield Written(event.kind, _key(event))


def _key(event: Event) -> Hashable:
    return event.subject, event.at_ms


def _delivered(arguments: Sequence[Any]) -> str:
    logged: LoggedEvent = arguments[0]
    return f"deliver {logged.event.kind}"


def _delivered_key(arguments: Sequence[Any]) -> Hashable:
    return _key(arguments[0].event)


POOL = About(
    "pool",
    written={"claim": _claimed, "apply": _applied, "apply_together": _applied_together},
)
SINK = About(
    "sink",
    kind="producer",
    label=_delivered,
    calls=frozenset({"send"}),
    follows=_delivered_key,
)
