"""Judges what callers were answered: for every owner, an order that explains all of it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from tests.faults.history import Attempt, History
from tests.histories.leases import ABOUT, CLAIMS, LeaseCall, LeaseModel, Leases, only_reads
from tests.histories.search import UndecidedError, find_order

Owner = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the model must know of the run."""

    skew_sec: float = 0
    has_probes: bool = False
    most_extensions: int | None = None


def judge(history: History, limits: Limits) -> list[str]:
    """Everything that no order explains, in sentences."""
    return [
        problem
        for owner, attempts in sorted(_by_owner(history).items())
        for problem in _judge_owner(owner, attempts, limits)
    ]


def _by_owner(history: History) -> dict[Owner, list[Attempt]]:
    """A sandbox has one owner in its life, so all that is done to it is about that one's leases."""
    owners: dict[str, Owner] = {}
    for each in history.attempts:
        if each.is_lease:
            owners.setdefault(each.body["sandbox_id"], (each.track, each.key))
    found: dict[Owner, list[Attempt]] = defaultdict(list)
    for each in history.attempts:
        if each.kind in CLAIMS:
            found[each.track, each.key].append(each)
        elif each.kind in ABOUT and each.sandbox_id in owners:
            found[owners[each.sandbox_id]].append(each)
    return found


def _judge_owner(owner: Owner, attempts: Sequence[Attempt], limits: Limits) -> Iterator[str]:
    told: dict[str, int] = {}
    for each in attempts:
        if each.is_lease or (each.kind == "extend" and each.status == 200):
            end = int(each.body["expires_at"])
            told[each.body["sandbox_id"]] = min(end, told.get(each.body["sandbox_id"], end))
    if not told:
        return
    calls = [_call(owner, each) for each in attempts]
    model = LeaseModel(told, limits.skew_sec, limits.has_probes, limits.most_extensions)
    try:
        verdict = find_order(calls, Leases(), model.step, only_reads)
    except UndecidedError:
        yield f"undecided: the calls of {owner}"
        return
    if not verdict.is_possible:
        fits = "; ".join(map(_sentence, verdict.order[-4:]))
        rest = "; ".join(map(_sentence, verdict.rest[:4]))
        yield f"no order explains the calls of {owner}: after [{fits}] nothing fits of [{rest}]"


def _call(owner: Owner, attempt: Attempt) -> LeaseCall:
    is_known = attempt.status is not None and attempt.status < 500
    return LeaseCall(
        attempt.kind,
        attempt.sent_at,
        attempt.answered_at if is_known else inf,
        attempt.status if is_known else None,
        code=attempt.code,
        key=attempt.key,
        sandbox_id=attempt.sandbox_id,
        is_stranger=bool(attempt.track) and attempt.track != owner[0],
        answer=attempt.body,
    )


def _sentence(call: LeaseCall) -> str:
    end = "never" if call.end == inf else f"{call.end:.3f}"
    about = f" {call.sandbox_id}" if call.sandbox_id else ""
    answer = f"{call.status} {call.code}{call.leased} {call.ends_at or ''}".strip()
    return f"{call.kind}{about} ({call.begin:.3f} to {end}): {answer}"
