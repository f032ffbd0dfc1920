"""Searches a history for an order that a sequential model allows, by Wing and Gong's algorithm.

Calls that overlap may have taken effect in any order, others only in that of the clock. A call that
was not answered may have taken effect at any time after it began, or never.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, Protocol, TypeVar


class Call(Protocol):
    @property
    def begin(self) -> float: ...

    @property
    def end(self) -> float:
        """Infinite if it was not answered."""
        ...


C = TypeVar("C", bound=Call)
S = TypeVar("S")

Step = Callable[[S, C, float], Iterable[S]]
"""The states after a call that took effect in this one, and gave its answer, at the latest at this
time; none if the model does not allow it."""

MOST_STEPS = 200_000
"""A history that needs more is undecided."""


class UndecidedError(Exception):
    """The search took too long."""


@dataclass(frozen=True, slots=True)
class Verdict(Generic[C]):
    is_possible: bool
    order: Sequence[C]
    """One that is allowed; else the longest that was found."""
    rest: Sequence[C]
    """The answered calls that fit nowhere behind it."""
    steps: int


def find_order(
    calls: Sequence[C],
    initial: S,
    step: Step[S, C],
    only_reads: Callable[[C], bool] = lambda _: False,
) -> Verdict[C]:
    """States must be hashable: a set of calls that led to a state once before is not searched
    again. What `only_reads` changes no state ever, so wherever it fits first is as good as
    later."""
    calls = sorted(calls, key=lambda call: (call.begin, call.end))
    search = _Search(calls, step, only_reads)
    is_possible = search.succeeds(initial)
    order = search.longest
    rest = [call for call in calls if call.end < inf and call not in order]
    return Verdict(is_possible, order, [] if is_possible else rest, search.steps)


class _Search(Generic[S, C]):
    def __init__(
        self, calls: Sequence[C], step: Step[S, C], only_reads: Callable[[C], bool]
    ) -> None:
        self._calls = calls
        self._step = step
        self._reads = sum(1 << n for n, call in enumerate(calls) if only_reads(call))
        self._answered = sum(1 << n for n, call in enumerate(calls) if call.end < inf)
        self._seen: set[tuple[int, S]] = set()
        self.longest: list[C] = []
        self.steps = 0

    def succeeds(self, initial: S) -> bool:
        """Depth first, without recursion: a history may be long."""
        everything = (1 << len(self._calls)) - 1
        stack: list[tuple[int, S, tuple[int, ...]]] = [(everything, initial, ())]
        while stack:
            left, state, order = stack.pop()
            if (left, state) in self._seen:
                continue
            self._seen.add((left, state))
            if len(order) > len(self.longest) or not left & self._answered:
                self.longest = [self._calls[n] for n in order]
            if not left & self._answered:
                return True
            latest = min(self._calls[n].end for n in _bits(left & self._answered))
            following = list(self._next(left, latest))
            if (read := self._first_read(state, following, latest)) is not None:
                stack.append((left & ~(1 << read), state, (*order, read)))
                continue
            for number in reversed(following):
                rest = left & ~(1 << number)
                stack.extend(
                    (rest, after, (*order, number)) for after in self._after(state, number, latest)
                )
        return False

    def _first_read(self, state: S, following: Sequence[int], latest: float) -> int | None:
        """One that fits now, and leaves no doubt whether a lease is over."""
        for number in following:
            if self._reads >> number & 1 and self._after(state, number, latest) == [state]:
                return number
        return None

    def _after(self, state: S, number: int, latest: float) -> list[S]:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise UndecidedError
        call = self._calls[number]
        return list(self._step(state, call, min(latest, call.end)))

    def _next(self, left: int, latest: float) -> Iterable[int]:
        """What may be next: whatever began before the first of the others ended. Those that were
        answered come first."""
        possible = []
        for number in _bits(left):
            if self._calls[number].begin > latest:
                break
            possible.append(number)
        return sorted(possible, key=lambda n: (self._calls[n].end == inf, n))


def _bits(number: int) -> Iterable[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
