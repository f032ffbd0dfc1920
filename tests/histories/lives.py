"""The sequential models of one sandbox and of one project's preview: what is past never comes
back."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TypeVar

from tests.histories.life_calls import LifeCall, LifeHistory
from tests.histories.search import UndecidedError, find_order

S = TypeVar("S")
Step = Callable[[S, LifeCall, float], Iterable[S]]

_PHASES = ("starting", "running", "ended", "recycled")


@dataclass(frozen=True, slots=True, order=True)
class RunState:
    """A sandbox only moves on: from attempt to attempt, and within one from phase to phase. Which
    it does by itself too, as machines end."""

    attempt: int = 0
    phase: int = _PHASES.index("ended")


def _phase_of(status: str) -> int:
    return _PHASES.index(status) if status in _PHASES else _PHASES.index("ended")


def run_step(
    starts: Sequence[float], state: RunState, call: LifeCall, latest: float
) -> Iterator[RunState]:
    """`starts` are the times at which a start was called: there is one attempt for each at most."""
    is_gone = state.phase == _PHASES.index("recycled")
    if call.outcome == "ok" and call.status:
        told = RunState(call.number, _phase_of(call.status))
        if told >= state and not (is_gone and told.phase != state.phase):
            possible = sum(begin <= latest for begin in starts)
            if told.attempt <= possible:
                yield told
    elif call.outcome == "SANDBOX_RECYCLED":
        yield replace(state, phase=_PHASES.index("recycled"))
    else:
        yield state


@dataclass(frozen=True, slots=True)
class PreviewState:
    live: str = ""
    past: frozenset[str] = frozenset()


def preview_step(state: PreviewState, call: LifeCall, _latest: float) -> Iterator[PreviewState]:
    """The preview of a project is another one only after the end of the one before."""
    ended = PreviewState("", state.past | {state.live} - {""})
    is_sure = call.outcome == "ok" and bool(call.status)
    if not is_sure or (call.status == "running" and call.made == state.live):
        yield state
    elif call.status == "running" and call.made not in ended.past:
        yield PreviewState(call.made, ended.past)
    elif call.status in ("expired", "not_found"):
        yield ended


def judge_runs(history: LifeHistory) -> list[str]:
    def step_for(calls: Sequence[LifeCall]) -> Step[RunState]:
        return partial(run_step, [each.begin for each in calls if each.kind == "start"])

    return _judge(history, RunState(), step_for)


def judge_previews(history: LifeHistory) -> list[str]:
    return _judge(history, PreviewState(), lambda _: preview_step)


def _judge(
    history: LifeHistory, initial: S, step_for: Callable[[Sequence[LifeCall]], Step[S]]
) -> list[str]:
    """Everything that no order explains, in sentences."""
    by_subject: dict[str, list[LifeCall]] = defaultdict(list)
    for each in history.calls:
        by_subject[each.subject].append(each)
    problems = []
    for subject, calls in sorted(by_subject.items()):
        step = step_for(calls)
        answered = [each for each in calls if each.end < inf]
        try:
            verdict = find_order(answered, initial, step)
        except UndecidedError:
            problems.append(f"undecided: the calls about {subject}")
            continue
        if not verdict.is_possible:
            fits = "; ".join(map(str, verdict.order[-4:]))
            rest = "; ".join(map(str, verdict.rest[:4]))
            problems.append(
                f"no order explains the calls about {subject}: after [{fits}] nothing fits of "
                f"[{rest}]"
            )
    return problems
