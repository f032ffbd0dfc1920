"""Gaps in a device's readings, as a strip over the displayed range."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

Kind = Literal["before", "readings", "gap"]


@dataclass(frozen=True, slots=True)
class Range:
    """The displayed range in Unix seconds, in buckets of `step` seconds."""

    begins_at: float
    ends_at: float
    known_from: float
    """When it was registered, or the time of its first reading: nothing is missing before."""
    step: float

    def share(self, seconds: float) -> float:
        """As a percentage of the range."""
        return round(100 * seconds / (self.ends_at - self.begins_at), 3)


@dataclass(frozen=True, slots=True)
class Stretch:
    kind: Kind
    begins_at: float
    ends_at: float
    offset: float
    """Offset from the start of the range, and length, both in percent of it."""
    share: float

    @property
    def seconds(self) -> float:
        return self.ends_at - self.begins_at


@dataclass(frozen=True, slots=True)
class Strip:
    label: str
    stretches: Sequence[Stretch]

    @property
    def gaps(self) -> list[Stretch]:
        return [each for each in self.stretches if each.kind == "gap"]


def strip(label: str, buckets: Iterable[float], within: Range) -> Strip:
    """`buckets` are the start times of those with a reading. A device that sends rarely has empty
    buckets in between: only an interval of at least twice the usual one is a gap."""
    begins = sorted(buckets)
    first = max(within.begins_at, within.known_from - within.known_from % within.step)
    hole = 2 * _usual(begins, within.step)
    edges = [first - within.step, *begins]
    gaps = [(one + within.step, two) for one, two in pairwise(edges) if two - one >= hole]
    if within.ends_at - edges[-1] > hole:  # the last bucket is still open
        gaps.append((edges[-1] + within.step, within.ends_at))
    return Strip(label, _stretches(gaps, min(first, within.ends_at), within))


def _usual(begins: Sequence[float], step: float) -> float:
    """The median interval between readings; at least one bucket."""
    return median(two - one for one, two in pairwise(begins)) if len(begins) > 1 else step


def _stretches(gaps: Sequence[tuple[float, float]], first: float, within: Range) -> list[Stretch]:
    found: list[Stretch] = []
    at = within.begins_at

    def go_to(end: float, kind: Kind) -> float:
        if end > at:
            offset = within.share(at - within.begins_at)
            found.append(Stretch(kind, at, end, offset, within.share(end - at)))
        return max(end, at)

    at = go_to(first, "before")
    for begin, end in gaps:
        at = go_to(begin, "readings")
        at = go_to(end, "gap")
    go_to(within.ends_at, "readings")
    return found
