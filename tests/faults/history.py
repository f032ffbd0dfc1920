"""What callers sent and were answered, and whether it can be true beside what the pool holds."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import combinations
from math import inf
from pathlib import Path
from typing import Any

import orjson

from sandyard.broker.pool.model import Sandbox, Status
from tests.faults.pool_contents import Stock

ASKING = ("allocate", "wait", "queue")
ENDING = ("mark", "release", "replace", "hold")
EXTENSION_MINUTES = 1
"""By how much each call extends a lease."""
INDEX_LAG_SEC = 10
"""A row that is older than this is in every index; so is what happened to it before."""

_GIVEN_UP = (Status.PENDING_DELETION, Status.DELETION_FAILED)
_Owner = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request. `status` is None if no answer came: then nobody knows what was done."""

    kind: str
    sent_at: float
    answered_at: float
    status: int | None
    track: str = ""
    key: str = ""
    sandbox_id: str = ""
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> str:
        return str(self.body.get("error", {}).get("code", ""))

    @property
    def is_lease(self) -> bool:
        return self.kind in (*ASKING, "replace") and self.status in (200, 201)


@dataclass(slots=True)
class History:
    attempts: list[Attempt] = field(default_factory=list)

    def add(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def of(self, *kinds: str) -> Iterator[Attempt]:
        return (attempt for attempt in self.attempts if attempt.kind in kinds)

    def save(self, path: Path) -> None:
        path.write_bytes(b"\n".join(orjson.dumps(asdict(each)) for each in self.attempts))


@dataclass(slots=True)
class _Told:
    """A lease as callers were told of it."""

    owner: _Owner
    body: dict[str, Any]
    known_from: float
    ends_from: float
    """The earliest instant at which it may have ended."""
    times_new: int = 0
    ends: set[int] = field(default_factory=set)
    """Every end that was told of it."""

    @property
    def expires_at(self) -> int:
        """The latest end that was told: until then it is live, unless it was ended."""
        return max(self.ends)


def check(
    history: History,
    stock: Stock,
    *,
    listed: Collection[str] | None = None,
    read_at: float = 0,
    longest_sec: float = inf,
    skew_sec: float = 0,
) -> list[str]:
    """Everything that cannot be, in sentences; `listed` are the provider's own ids at the end.

    `read_at` is when the pool was read, if that was long after the last answer: leases end
    meanwhile. `longest_sec` is how long a lease may last. `skew_sec`: by so much a replica's clock
    may be ahead of the callers'.
    """
    told, problems = _leases(history)
    problems += _wrong_ends(history, told, longest_sec)
    problems += _two_live(told, skew_sec)
    problems += _lost(told, stock, history, read_at)
    problems += _inconsistent(stock)
    problems += _back_from_the_dead(stock, listed)
    problems += _false_exhaustion(history, stock)
    problems += _wrong_answers(history, told, skew_sec)
    return problems


def _leases(history: History) -> tuple[dict[str, _Told], list[str]]:
    told: dict[str, _Told] = {}
    problems: list[str] = []
    for answer in history.of(*ASKING, "replace"):
        if not answer.is_lease:
            continue
        owner, body = (answer.track, answer.key), answer.body
        sandbox_id = body["sandbox_id"]
        known = told.setdefault(sandbox_id, _Told(owner, body, answer.answered_at, 0))
        known.known_from = min(known.known_from, answer.answered_at)
        known.times_new += answer.status == 201
        known.ends.add(body["expires_at"])
        if known.owner != owner:
            problems.append(f"two owners of {sandbox_id}: {known.owner} and {owner}")
        elif known.body | {"expires_at": 0} != body | {"expires_at": 0}:
            problems.append(f"two answers for {owner}: {known.body} and {body}")
    problems += [
        f"called new {lease.times_new} times: {sandbox_id} of {lease.owner}"
        for sandbox_id, lease in told.items()
        if lease.times_new > 1
    ]
    for extended in history.of("extend"):
        if extended.status == 200 and (lease := told.get(extended.body["sandbox_id"])):
            lease.ends.add(extended.body["expires_at"])
    for lease in told.values():
        lease.ends_from = lease.expires_at
    for end, sandbox_id in _ends(history):
        if lease := told.get(sandbox_id):
            lease.ends_from = min(lease.ends_from, end.sent_at)
    return told, problems


def _ends(history: History) -> Iterator[tuple[Attempt, str]]:
    """What may have ended a lease, and of which sandbox: a mark of one that was replaced ends the
    lease of the one that replaced it."""
    replaced_by = _replaced_by(history)
    for end in history.of(*ENDING):
        followed = replaced_by if end.kind == "mark" else {}
        for sandbox_id in _followers(end.sandbox_id, followed):
            yield end, sandbox_id


def _replaced_by(history: History) -> dict[str, set[str]]:
    """A call that comes again later is told of the last that its lease has moved to; one that was
    not answered may have moved it to any that its owner was told of since."""
    found: dict[str, set[str]] = defaultdict(set)
    leases = [each for each in history.of(*ASKING, "replace") if each.is_lease]
    for each in history.of("replace"):
        if each.status == 200:
            found[each.sandbox_id].add(each.body["sandbox_id"])
        elif each.status is None or each.status >= 500:
            found[each.sandbox_id] |= {
                lease.body["sandbox_id"]
                for lease in leases
                if (lease.track, lease.key) == (each.track, each.key)
                and lease.answered_at > each.sent_at
            }
    return found


def _followers(sandbox_id: str, replaced_by: Mapping[str, Collection[str]]) -> Collection[str]:
    """The sandbox itself, and those to which its lease has moved."""
    found, left = {sandbox_id}, [sandbox_id]
    while left:
        new = set(replaced_by.get(left.pop(), ())) - found
        found |= new
        left += new
    return found


def _wrong_ends(history: History, told: dict[str, _Told], longest_sec: float) -> Iterator[str]:
    keys: dict[str, set[str]] = defaultdict(set)
    replaced_by = _replaced_by(history)
    for extended in history.of("extend"):
        for sandbox_id in _followers(extended.sandbox_id, replaced_by):
            keys[sandbox_id].add(extended.key)
    for sandbox_id, lease in told.items():
        added = max(lease.ends) - min(lease.ends)
        if added > 60 * EXTENSION_MINUTES * len(keys[sandbox_id]):
            yield f"extended more often than asked: {sandbox_id} of {lease.owner}"
        if added and lease.expires_at - lease.body["allocated_at"] > longest_sec:
            yield f"extended past its bound: {sandbox_id} of {lease.owner}"


def _two_live(told: dict[str, _Told], skew_sec: float) -> Iterator[str]:
    by_owner: dict[_Owner, list[tuple[str, _Told]]] = defaultdict(list)
    for sandbox_id, lease in told.items():
        by_owner[lease.owner].append((sandbox_id, lease))
    for owner, leases in by_owner.items():
        leases.sort(key=lambda entry: entry[1].known_from)
        for (one, earlier), (other, later) in combinations(leases, 2):
            if later.known_from + skew_sec < min(earlier.ends_from, later.ends_from):
                yield f"two live sandboxes of {owner}: {one} and {other}"


def _lost(told: dict[str, _Told], stock: Stock, history: History, read_at: float) -> Iterator[str]:
    given_up = {end.sandbox_id: end.sent_at for end in history.of(*ENDING) if end.status == 200}
    ended = {sandbox_id for _, sandbox_id in _ends(history)}
    last = max((attempt.answered_at for attempt in history.attempts), default=0.0)
    last = max(last, read_at)
    for sandbox_id, lease in told.items():
        may_be_over = sandbox_id in ended or last >= lease.expires_at - 1
        row = stock.rows.get(sandbox_id)
        left = row or stock.gone.get(sandbox_id)
        what = f"{sandbox_id} of {lease.owner}"
        if left is None:
            yield f"lost: {what} has neither row nor tombstone"
        elif row is None or row.status in _GIVEN_UP:
            if left.allocated_to_track != lease.owner[0]:
                yield f"lost: {what} was given up as a sandbox of {left.allocated_to_track}"
            if not may_be_over:
                yield f"lost: {what} was given up though nobody asked for it"
        elif row.status is Status.HELD:
            yield from _wrongly_held(row, lease, history)
        elif row.status is not Status.ALLOCATED:
            yield f"lost: {what} is {row.status}"
        elif given_up.get(sandbox_id, -inf) > lease.known_from:  # not a hold before it
            yield f"lost: the end of {what} was answered, and it is still allocated"
        else:
            yield from _disagreeing(row, lease)


def _wrongly_held(row: Sandbox, lease: _Told, history: History) -> Iterator[str]:
    what = f"{row.sandbox_id} of {lease.owner}"
    asked_for = {each.sandbox_id for each in history.of("replace", "hold")}
    if row.sandbox_id not in asked_for:
        yield f"lost: {what} is held though nobody asked for another"
    elif row.allocated_to_track != lease.owner[0]:
        yield f"lost: {what} is held as a sandbox of {row.allocated_to_track}"


def _disagreeing(row: Sandbox, lease: _Told) -> Iterator[str]:
    if (row.allocated_to_track, row.idempotency_key) != lease.owner:
        yield f"two owners of {row.sandbox_id}: {lease.owner}, and in the pool another"
    elif row.allocated_at != lease.body["allocated_at"]:
        yield f"two answers for {lease.owner}: the row of {row.sandbox_id} has another time"


def _inconsistent(stock: Stock) -> Iterator[str]:
    owners: dict[tuple[str | None, str | None], str] = {}
    holders = stock.tickets.keys() | stock.reservations.keys()
    for sandbox_id, row in stock.rows.items():
        if row.status is Status.ALLOCATED:
            owner = (row.allocated_to_track, row.idempotency_key)
            if owner in owners:
                yield f"two live sandboxes of {owner}: {owners[owner]} and {sandbox_id}"
            owners[owner] = sandbox_id
            if stock.leases.get(owner) != sandbox_id:
                yield f"allocated without a lease: {sandbox_id}"
        if row.status is Status.RESERVED and row.reserved_for not in holders:
            yield f"kept for nobody: {sandbox_id}"
    for owner, sandbox_id in stock.leases.items():
        if owners.get(owner) != sandbox_id:
            yield f"a lease without its allocated row: {owner}"


def _back_from_the_dead(stock: Stock, listed: Collection[str] | None) -> Iterator[str]:
    for sandbox_id, row in stock.rows.items():
        in_use = row.status in (Status.AVAILABLE, Status.ALLOCATED)
        if sandbox_id in stock.gone:
            yield f"back after its deletion: {sandbox_id} is {row.status}"
        elif listed is not None and in_use and row.external_id not in listed:
            yield f"back after its deletion: the provider has no {sandbox_id}"


def _false_exhaustion(history: History, stock: Stock) -> Iterator[str]:
    """A row that is free at the end, and was no operator's, was free since it last changed."""
    touched = {attempt.sandbox_id for attempt in history.of("quarantine", "restore")}
    always_free = [
        row.updated_at + INDEX_LAG_SEC
        for sandbox_id, row in stock.rows.items()
        if row.status is Status.AVAILABLE and sandbox_id not in touched
    ]
    for answer in history.of("allocate"):
        if answer.code == "NO_SANDBOXES_AVAILABLE":
            free = sum(since < answer.sent_at for since in always_free)
            free += _kept_for(answer, stock)
            if free:
                yield f"called empty while {free} were free: to {answer.track}"


def _kept_for(answer: Attempt, stock: Stock) -> int:
    """How many were kept for a reservation of this track all the time, and still are."""
    own = {
        reservation_id
        for reservation_id, each in stock.reservations.items()
        if each.admits(answer.track, None)
        and each.starts_at <= answer.sent_at
        and answer.answered_at < each.ends_at
        and each.cancelled_at is None
    }
    return sum(
        row.updated_at + INDEX_LAG_SEC < answer.sent_at
        for row in stock.rows.values()
        if row.status is Status.RESERVED and row.reserved_for in own
    )


def _wrong_answers(history: History, told: dict[str, _Told], skew_sec: float) -> Iterator[str]:
    for answer in history.attempts:
        if answer.status is not None and (answer.status == 500 or answer.status in (400, 401)):
            yield f"answered {answer.status} {answer.code} to {answer.kind}"
        lease = told.get(answer.sandbox_id)
        if lease is None or answer.kind not in ("mark", "get", "extend"):
            continue
        what = f"{answer.kind} of {answer.sandbox_id} by {answer.track}"
        if answer.track != lease.owner[0]:
            if answer.status == 200:
                yield f"a stranger was let in: {what}"
        elif _denied(answer, lease, skew_sec):
            yield f"an owner was turned away: {what}: {answer.status} {answer.code}"


def _denied(answer: Attempt, lease: _Told, skew_sec: float) -> bool:
    if answer.sent_at < lease.known_from:
        return False
    match answer.status:
        case 403:
            is_over = answer.answered_at + skew_sec >= min(lease.ends)
            return not (answer.code == "ALLOCATION_EXPIRED" and is_over)
        case 404:
            return answer.kind == "mark" or answer.answered_at + skew_sec < lease.ends_from
    return False


def kinds(problems: Iterable[str]) -> set[str]:
    """What sorts of problems these are."""
    return {problem.split(":")[0].split(" of ")[0] for problem in problems}
