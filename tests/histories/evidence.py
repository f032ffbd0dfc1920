"""What a run leaves for its checkers, kept in a folder so that it can be judged again without a new
run, also by other rules."""

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Protocol

import orjson

from sandyard.broker.log_rules import PoolRules
from sandyard.kit.changes.events import Event, LoggedEvent
from sandyard.platform.events.log_rules import broken_runs
from sandyard.previews.log_rules import broken_previews
from tests.faults import event_log_rules
from tests.faults.history import History, check
from tests.faults.pool_contents import Stock
from tests.faults.queue_observer import Sightings
from tests.histories.judge import Limits, judge
from tests.histories.life_calls import LifeHistory
from tests.histories.lives import judge_previews, judge_runs

_FILE = "evidence.pickle"


class Evidence(Protocol):
    def problems(self) -> list[str]:
        """Everything that cannot be, in sentences."""

    @property
    def calls(self) -> Sequence[Any]: ...

    @property
    def log(self) -> Sequence[LoggedEvent]: ...


@dataclass(frozen=True, slots=True)
class PoolEvidence:
    history: History
    limits: Limits
    stock: Stock
    log: Sequence[LoggedEvent]
    listed: Sequence[str]
    """The provider's own ids at the end."""
    read_at: float
    longest_sec: float = inf
    ticket_ttl_sec: float = inf
    sightings: Sightings = field(default_factory=Sightings)

    @property
    def calls(self) -> Sequence[Any]:
        return self.history.attempts

    def problems(self) -> list[str]:
        limits = event_log_rules.Limits(self.longest_sec, self.ticket_ttl_sec)
        return [
            *check(
                self.history,
                self.stock,
                listed=self.listed,
                read_at=self.read_at,
                longest_sec=self.longest_sec,
                skew_sec=self.limits.skew_sec,
            ),
            *judge(self.history, self.limits),
            *event_log_rules.broken_rules(self.log, self.sightings, limits),
            *self._of_events(),
        ]

    def _of_events(self) -> Iterator[str]:
        """By the rules of `sandyard verify`."""
        ttl_sec = 0 if self.ticket_ttl_sec == inf else self.ticket_ttl_sec
        rules = PoolRules(ttl_sec, late_ms=0)
        for subject, events in _by_subject(map(_begun_when_written, self.log)).items():
            yield from (f"{subject} {problem}" for problem in rules.add(events))
        yield from (f"{each.subject} {each.message}" for each in rules.across())


_OF_CALLS: Mapping[str, Callable[[LifeHistory], list[str]]] = {
    "platform": judge_runs,
    "previews": judge_previews,
}
_OF_EVENTS: Mapping[str, tuple[str, Callable[[Sequence[Event]], list[str]]]] = {
    "platform": ("sandbox", broken_runs),
    "previews": ("preview", broken_previews),
}


@dataclass(frozen=True, slots=True)
class LifeEvidence:
    """Of sandboxes or previews."""

    history: LifeHistory
    log: Sequence[LoggedEvent]

    @property
    def calls(self) -> Sequence[Any]:
        return self.history.calls

    def problems(self) -> list[str]:
        return [*_OF_CALLS[self.history.part](self.history), *self._of_events()]

    def _of_events(self) -> Iterator[str]:
        noun, rules = _OF_EVENTS[self.history.part]
        for subject, events in _by_subject(self.log).items():
            if events[0].kind.startswith(f"{noun}."):
                yield from (f"{subject} {problem}" for problem in rules(events))


def _begun_when_written(logged: LoggedEvent) -> LoggedEvent:
    """The claim may have read its clock long before."""
    if logged.event.kind != "lease.created":
        return logged
    return replace(logged, event=replace(logged.event, at_ms=int(logged.event_id[:12], 16)))


def _by_subject(log: Iterable[LoggedEvent]) -> Mapping[str, list[Event]]:
    """The changes of each, in order."""
    found: dict[str, list[Event]] = defaultdict(list)
    for each in sorted(log, key=lambda logged: logged.event.sequence or 0):
        if each.event.sequence is not None:
            found[each.event.subject].append(each.event)
    return found


def save(evidence: Evidence, folder: Path) -> None:
    """Whole, and as lines that people read."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _FILE).write_bytes(pickle.dumps(evidence))
    for name, found in (("history", evidence.calls), ("events", evidence.log)):
        lines = (orjson.dumps(asdict(each)) for each in found)
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(lines))


def load(folder: Path) -> Evidence:
    loaded: Evidence = pickle.loads((folder / _FILE).read_bytes())  # noqa: S301 - our own
    return loaded
