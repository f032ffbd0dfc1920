"""The timeline, second by second, and the verdict."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sandyard.tools.gameday.model import Engine, Part, Promise, Scenario
from sandyard.tools.gameday.promises import NO_ANSWER, Call, Violation

_MOST_SHOWN = 5
_HEADER = (
    f"{'second':>6}  {'phase':8} {'leased':>6} {'again':>6} {'marked':>6} {'409':>5} {'503':>5}"
    f" {'none':>5} {'slowest':>8}  alerts firing"
)
_OTHERS_HEADER = (
    f"{'second':>6}  {'phase':8} {'done':>6} {'4xx':>6} {'503':>5} {'none':>5} {'slowest':>8}"
    "  alerts firing"
)


CALM = "calm"


def alerts_since_fault(
    phases: Mapping[int, str], firing: Mapping[int, frozenset[str]]
) -> frozenset[str]:
    """An alert that fired before the fault does not count as detection."""
    return frozenset().union(*(firing[each] for each in firing if phases[each] != CALM))


@dataclass(frozen=True, slots=True)
class Outcome:
    """All results of a run."""

    scenario: Scenario
    engine: Engine
    calls: tuple[Call, ...]
    phases: Mapping[int, str]
    firing: Mapping[int, frozenset[str]]
    violations: tuple[Violation, ...]
    alerts_watched: bool
    notes: tuple[str, ...] = field(default=())

    @property
    def fired(self) -> frozenset[str]:
        return alerts_since_fault(self.phases, self.firing)

    @property
    def missing_alerts(self) -> tuple[str, ...]:
        if not self.alerts_watched:
            return ()
        return tuple(each for each in self.scenario.alerts if each not in self.fired)

    @property
    def has_passed(self) -> bool:
        return not self.violations and not self.missing_alerts


def lines(outcome: Outcome) -> Iterator[str]:
    scenario = outcome.scenario
    yield f"Game day {scenario.name} on {outcome.engine}: {scenario.summary}"
    yield ""
    yield _HEADER if scenario.part is Part.BROKER else _OTHERS_HEADER
    yield from (_second(outcome, second) for second in sorted(outcome.phases))
    yield ""
    for promise in scenario.promises:
        yield from _promise(promise, [v for v in outcome.violations if v.promise == promise])
    yield from _alerts(outcome)
    yield from outcome.notes
    yield f"Verdict: {'passed' if outcome.has_passed else 'FAILED'}"


def _second(outcome: Outcome, second: int) -> str:
    calls = [each for each in outcome.calls if not each.is_audit and int(each.ended_at) == second]
    slowest = max((each.ended_at - each.started_at for each in calls), default=0.0)
    alerts = " ".join(sorted(outcome.firing.get(second, ())))
    counts = _of_broker(calls) if outcome.scenario.part is Part.BROKER else _of_others(calls)
    line = f"{second:>6}  {outcome.phases[second]:8} {counts} {slowest * 1000:>5.0f} ms  {alerts}"
    return line.rstrip()


def _of_broker(calls: Sequence[Call]) -> str:
    claims = Counter(each.status for each in calls if each.kind == "claim")
    marked = sum(each.kind == "mark" and each.status == 200 for each in calls)
    all_of = Counter(each.status for each in calls)
    return (
        f"{claims[201]:>6} {claims[200]:>6} {marked:>6} {all_of[409]:>5} {all_of[503]:>5}"
        f" {all_of[NO_ANSWER]:>5}"
    )


def _of_others(calls: Sequence[Call]) -> str:
    all_of = Counter(each.status for each in calls)
    done = sum(count for status, count in all_of.items() if 200 <= status < 300)
    rest = len(calls) - done - all_of[503] - all_of[NO_ANSWER]
    return f"{done:>6} {rest:>6} {all_of[503]:>5} {all_of[NO_ANSWER]:>5}"


def _promise(promise: Promise, broken: Sequence[Violation]) -> Iterator[str]:
    yield f"{'BROKEN' if broken else 'held':6}  {promise}"
    for each in broken[:_MOST_SHOWN]:
        yield f"        {each.what}"
    if len(broken) > _MOST_SHOWN:
        yield f"        and {len(broken) - _MOST_SHOWN} more"


def _alerts(outcome: Outcome) -> Iterator[str]:
    if not outcome.alerts_watched:
        yield "alerts  not watched"
        return
    for each in outcome.scenario.alerts:
        verdict = "did NOT fire"
        if each in outcome.fired:
            seconds = [second for second, firing in outcome.firing.items() if each in firing]
            verdict = f"fired at second {min(seconds)}"
        yield f"alert   {each} {verdict}"
    if others := outcome.fired - set(outcome.scenario.alerts):
        yield f"alerts  also fired: {', '.join(sorted(others))}"
