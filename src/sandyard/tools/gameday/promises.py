"""Checks the guarantees from the load's responses. Pure: no I/O, no clock."""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sandyard.tools.gameday.model import Promise

NO_ANSWER = 0
LEASED = (200, 201)
_TOLD_WELL = {
    "claim": {200, 201, 409, 503, NO_ANSWER},
    "mark": {200, 503, NO_ANSWER},
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the load and its response; times are seconds since the start of the load."""

    kind: str
    """What is called: `claim` or `mark` by a track, other names by the loads of other parts."""
    track: str
    """Who calls: a track, a sandbox, a project or a device."""
    status: int
    body: str
    sandbox_id: str | None
    started_at: float
    ended_at: float
    is_audit: bool = False
    """Made after the load, to check the final state."""


@dataclass(frozen=True, slots=True)
class Supply:
    """The total number of sandboxes added by this time."""

    at: float
    total: int


@dataclass(frozen=True, slots=True)
class Violation:
    promise: Promise
    what: str


def violations(calls: Sequence[Call], supplies: Sequence[Supply]) -> list[Violation]:
    return [
        *_two_owners(calls),
        *_false_empty(calls, supplies),
        *_changed_answers(calls),
        *other_errors(calls),
    ]


def _leases(calls: Iterable[Call]) -> Iterator[Call]:
    return (each for each in calls if each.kind == "claim" and each.status in LEASED)


def _two_owners(calls: Sequence[Call]) -> Iterator[Violation]:
    tracks_of: dict[str | None, set[str]] = defaultdict(set)
    sandboxes_of: dict[str, set[str | None]] = defaultdict(set)
    for each in _leases(calls):
        tracks_of[each.sandbox_id].add(each.track)
        sandboxes_of[each.track].add(each.sandbox_id)
    for sandbox, tracks in tracks_of.items():
        if len(tracks) > 1:
            yield Violation(Promise.ONE_OWNER, f"{sandbox} was leased to {', '.join(tracks)}")
    for track, sandboxes in sandboxes_of.items():
        if len(sandboxes) > 1:
            yield Violation(Promise.ONE_OWNER, f"{track} got {len(sandboxes)} sandboxes")


def _false_empty(calls: Sequence[Call], supplies: Sequence[Supply]) -> Iterator[Violation]:
    """A deleted sandbox never comes back, so the sandboxes that existed when a claim started, less
    all that tracks may have taken before its response, were free the whole time."""
    first: dict[str, float] = {}
    for each in calls:
        if each.kind == "claim":
            first[each.track] = min(each.started_at, first.get(each.track, each.started_at))
    leased = {each.track for each in calls if each.kind == "claim" and each.status != 409}
    takers = sorted(at for track, at in first.items() if track in leased)
    for each in calls:
        if each.kind == "claim" and each.status == 409:
            there = max((s.total for s in supplies if s.at <= each.started_at), default=0)
            free = there - sum(at < each.ended_at for at in takers)
            if free > 0:
                what = f"{each.track} was told 409 at {each.started_at:.2f} s with {free} free"
                yield Violation(Promise.EMPTY_MEANS_EMPTY, what)


def _changed_answers(calls: Sequence[Call]) -> Iterator[Violation]:
    first: dict[str, Call] = {}
    for each in sorted(_leases(calls), key=lambda call: call.ended_at):
        known = first.setdefault(each.track, each)
        if known is each or known.body == each.body:
            continue
        promise = Promise.DURABLE if each.is_audit else Promise.SAME_ANSWER
        yield Violation(promise, f"{each.track} got {each.body}, and before that {known.body}")


def other_errors(
    calls: Sequence[Call], told_well: Mapping[str, Container[int]] = _TOLD_WELL
) -> Iterator[Violation]:
    """Responses that are neither a success nor the report of an outage, by kind of call."""
    for each in calls:
        if each.status not in told_well[each.kind]:
            what = f"{each.kind} by {each.track} was answered {each.status}: {each.body[:200]}"
            yield Violation(Promise.OUTAGE_IS_TOLD, what)
