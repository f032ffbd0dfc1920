"""Secrets that change while they are in use: a new value and the old one hold side by side."""

import hmac
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

LookAgain = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RotationPolicy:
    settle_sec: float
    """How long a new value is accepted before it is the one to use: until then some replicas may
    not know it."""
    overlap_sec: float
    """How long a value holds that is not kept any more."""


NEVER_DROPPED = math.inf
"""The overlap of keys that stored data rests on."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """The values of a secret as they are stored, and those that held before."""

    current: tuple[str, ...]
    since: float
    former: Mapping[str, float] = field(default_factory=dict)
    """Until when each holds, the one that was in use first."""

    def in_force(self, *, now: float, policy: RotationPolicy) -> tuple[str, ...]:
        """The values that hold now; the first is the one to use."""
        former = [value for value, until in self.former.items() if now < until]
        is_settled = now >= self.since + policy.settle_sec
        ordered = (*self.current, *former) if is_settled else (*former, *self.current)
        return tuple(dict.fromkeys(ordered))

    def rotate(self, current: tuple[str, ...], *, now: float, policy: RotationPolicy) -> "Rotation":
        """The same with other values stored since now; itself if they are the same."""
        if current == self.current:
            return self
        until = now + policy.overlap_sec
        before = self.in_force(now=now, policy=policy)
        former = {
            value: until if value in self.current else min(until, self.former[value])
            for value in before
        }
        return Rotation(current, now, former)


async def _never() -> None:
    pass


class Secret(Sequence[str]):
    """The values of a setting that hold now, swapped as a whole when it is rotated. The first is
    the one to use."""

    def __init__(self, values: Sequence[str], reload: LookAgain = _never) -> None:
        """`reload` reads it anew from where it is stored, and swaps the values if they changed."""
        self.reload = reload
        self.swap(values)

    def swap(self, values: Sequence[str]) -> None:
        self._encoded = tuple(value.encode() for value in values)
        self._values = tuple(values)

    def accepts(self, sent: bytes) -> bool:
        """Whether this is one of the values; each is compared, in constant time."""
        matches = [hmac.compare_digest(sent, each) for each in self._encoded]
        return any(matches)

    async def accepts_newest(self, sent: bytes) -> bool:
        """The same for a value that nothing else accepts: it may be newer than the last look."""
        await self.reload()
        return self.accepts(sent)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Secret({len(self._values)} values)"


class AnyOf(Sequence[str]):
    """The values of several secrets."""

    def __init__(self, *secrets: Sequence[str]) -> None:
        self._secrets = secrets

    @property
    def _values(self) -> tuple[str, ...]:
        return tuple(value for secret in self._secrets for value in secret)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)


def as_secret(values: Sequence[str]) -> Secret:
    """The secret itself, or one of values that never change."""
    return values if isinstance(values, Secret) else Secret(values)
