"""What callers sent and were answered, and whether it can be true beside what the table holds."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import orjson

from sandyard.broker.model import Status
from sandyard.kit.dynamo_values import Item

ENDING = ("mark", "release")
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
        return self.kind == "allocate" and self.status in (200, 201)


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


def check(
    history: History,
    table: Sequence[Item],
    *,
    listed: Collection[str] | None = None,
    read_at: float = 0,
) -> list[str]:
    """Everything that cannot be, in sentences; `listed` are the provider's own ids at the end.

    `read_at` is when the table was read, if that was long after the last answer: leases end
    meanwhile.
    """
    stock = _Stock(table)
    told, problems = _leases(history)
    problems += _two_live(told)
    problems += _lost(told, stock, history, read_at)
    problems += _inconsistent(stock)
    problems += _back_from_the_dead(stock, listed)
    problems += _false_exhaustion(history, stock)
    problems += _wrong_answers(history, told)
    return problems


class _Stock:
    """The table, sorted by kind of item."""

    def __init__(self, table: Sequence[Item]) -> None:
        self.rows = {i["sandbox_id"]: i for i in table if i["PK"].startswith("SBX#")}
        self.gone = {i["sandbox_id"]: i for i in table if i["PK"].startswith("GONE#")}
        self.leases = {i["PK"]: i for i in table if i["PK"].startswith("LEASE#")}


def _leases(history: History) -> tuple[dict[str, _Told], list[str]]:
    told: dict[str, _Told] = {}
    problems: list[str] = []
    for answer in history.of("allocate"):
        if not answer.is_lease:
            continue
        owner, body = (answer.track, answer.key), answer.body
        sandbox_id = body["sandbox_id"]
        known = told.setdefault(
            sandbox_id, _Told(owner, body, answer.answered_at, body["expires_at"])
        )
        known.known_from = min(known.known_from, answer.answered_at)
        known.times_new += answer.status == 201
        if known.owner != owner:
            problems.append(f"two owners of {sandbox_id}: {known.owner} and {owner}")
        elif known.body != body:
            problems.append(f"two answers for {owner}: {known.body} and {body}")
    problems += [
        f"called new {lease.times_new} times: {sandbox_id} of {lease.owner}"
        for sandbox_id, lease in told.items()
        if lease.times_new > 1
    ]
    for end in history.of(*ENDING):
        if lease := told.get(end.sandbox_id):
            lease.ends_from = min(lease.ends_from, end.sent_at)
    return told, problems


def _two_live(told: dict[str, _Told]) -> Iterator[str]:
    by_owner: dict[_Owner, list[tuple[str, _Told]]] = defaultdict(list)
    for sandbox_id, lease in told.items():
        by_owner[lease.owner].append((sandbox_id, lease))
    for owner, leases in by_owner.items():
        leases.sort(key=lambda entry: entry[1].known_from)
        for (one, earlier), (other, later) in combinations(leases, 2):
            if later.known_from < min(earlier.ends_from, later.ends_from):
                yield f"two live sandboxes of {owner}: {one} and {other}"


def _lost(told: dict[str, _Told], stock: _Stock, history: History, read_at: float) -> Iterator[str]:
    given_up = {end.sandbox_id for end in history.of(*ENDING) if end.status == 200}
    ended = {end.sandbox_id for end in history.of(*ENDING)}
    last = max((attempt.answered_at for attempt in history.attempts), default=0.0)
    last = max(last, read_at)
    for sandbox_id, lease in told.items():
        may_be_over = sandbox_id in ended or last >= lease.body["expires_at"] - 1
        row, gone = stock.rows.get(sandbox_id), stock.gone.get(sandbox_id)
        what = f"{sandbox_id} of {lease.owner}"
        if row is None and gone is None:
            yield f"lost: {what} has neither row nor tombstone"
        elif row is None or row["status"] in _GIVEN_UP:
            owner = gone.get("owner") if row is None and gone else (row or {})["allocated_to_track"]
            if owner != lease.owner[0]:
                yield f"lost: {what} was given up as a sandbox of {owner}"
            if not may_be_over:
                yield f"lost: {what} was given up though nobody asked for it"
        elif row["status"] != Status.ALLOCATED:
            yield f"lost: {what} is {row['status']}"
        elif sandbox_id in given_up:
            yield f"lost: the end of {what} was answered, and it is still allocated"
        elif (row["allocated_to_track"], row["idempotency_key"]) != lease.owner:
            yield f"two owners of {sandbox_id}: {lease.owner}, and in the table another"
        elif row["allocated_at"] != lease.body["allocated_at"]:
            yield f"two answers for {lease.owner}: the row of {sandbox_id} has another time"


def _inconsistent(stock: _Stock) -> Iterator[str]:
    owners: dict[str, str] = {}
    for sandbox_id, row in stock.rows.items():
        if row["status"] == Status.ALLOCATED:
            place = f"LEASE#{row['allocated_to_track']}#{row['idempotency_key']}"
            if place in owners:
                yield f"two live sandboxes of {place}: {owners[place]} and {sandbox_id}"
            owners[place] = sandbox_id
            if stock.leases.get(place, {}).get("sandbox_id") != sandbox_id:
                yield f"allocated without a lease: {sandbox_id}"
    for place, lease in stock.leases.items():
        if owners.get(place) != lease["sandbox_id"]:
            yield f"a lease without its allocated row: {place}"


def _back_from_the_dead(stock: _Stock, listed: Collection[str] | None) -> Iterator[str]:
    for sandbox_id, row in stock.rows.items():
        in_use = row["status"] in (Status.AVAILABLE, Status.ALLOCATED)
        if sandbox_id in stock.gone:
            yield f"back after its deletion: {sandbox_id} is {row['status']}"
        elif listed is not None and in_use and row["external_id"] not in listed:
            yield f"back after its deletion: the provider has no {sandbox_id}"


def _false_exhaustion(history: History, stock: _Stock) -> Iterator[str]:
    """A row that is free at the end, and was no operator's, was free ever since it was made."""
    touched = {attempt.sandbox_id for attempt in history.of("quarantine", "restore")}
    always_free = [
        row["created_at"] + INDEX_LAG_SEC
        for sandbox_id, row in stock.rows.items()
        if row["status"] == Status.AVAILABLE and sandbox_id not in touched
    ]
    for answer in history.of("allocate"):
        if answer.code == "NO_SANDBOXES_AVAILABLE":
            free = sum(since < answer.sent_at for since in always_free)
            if free:
                yield f"called empty while {free} were free: to {answer.track}"


def _wrong_answers(history: History, told: dict[str, _Told]) -> Iterator[str]:
    for answer in history.attempts:
        if answer.status is not None and (answer.status == 500 or answer.status in (400, 401)):
            yield f"answered {answer.status} {answer.code} to {answer.kind}"
        lease = told.get(answer.sandbox_id)
        if lease is None or answer.kind not in ("mark", "get"):
            continue
        what = f"{answer.kind} of {answer.sandbox_id} by {answer.track}"
        if answer.track != lease.owner[0]:
            if answer.status == 200:
                yield f"a stranger was let in: {what}"
        elif _denied(answer, lease):
            yield f"an owner was turned away: {what}: {answer.status} {answer.code}"


def _denied(answer: Attempt, lease: _Told) -> bool:
    if answer.sent_at < lease.known_from:
        return False
    match answer.status:
        case 403:
            is_over = answer.answered_at >= lease.body["expires_at"]
            return not (answer.code == "ALLOCATION_EXPIRED" and is_over)
        case 404:
            return answer.kind == "mark" or answer.answered_at < lease.ends_from
    return False


def kinds(problems: Iterable[str]) -> set[str]:
    """What sorts of problems these are."""
    return {problem.split(":")[0].split(" of ")[0] for problem in problems}
