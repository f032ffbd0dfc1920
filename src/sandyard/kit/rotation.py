"""Secrets that are rotated while in use: the new value and the old one are valid side by side."""

import hmac
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LookAgain = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RotationPolicy:
    distribution_sec: float
    """How long a new value is only accepted before it becomes primary: until then some replicas may
    not know it."""
    overlap_sec: float
    """How long a value stays valid after it is no longer stored."""


NEVER_DROPPED = math.inf
"""The overlap of keys that stored data depends on."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """The stored values of a secret, and its former values."""

    current: tuple[str, ...]
    since: float
    former: Mapping[str, float] = field(default_factory=dict)
    """When each expires; the former primary is first."""

    def in_force(self, *, now: float, policy: RotationPolicy) -> tuple[str, ...]:
        """The values that are valid now; the first is the primary one."""
        former = [value for value, until in self.former.items() if now < until]
        is_distributed = now >= self.since + policy.distribution_sec
        ordered = (*self.current, *former) if is_distributed else (*former, *self.current)
        return tuple(dict.fromkeys(ordered))

    def rotate(self, current: tuple[str, ...], *, now: float, policy: RotationPolicy) -> "Rotation":
        """The rotation to newly stored values at `now`; itself if they are unchanged."""
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


class _Values(Sequence[str]):
    _values: tuple[str, ...]

    def __getitem__(self, index: Any) -> Any:
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)


class Secret(_Values):
    """The currently valid values of a setting, replaced as a whole on rotation. The first is the
    primary one."""

    def __init__(self, values: Sequence[str], reload: LookAgain = _never) -> None:
        """`reload` rereads it from its source, and swaps the values if they changed."""
        self.reload = reload
        self.swap(values)

    def swap(self, values: Sequence[str]) -> None:
        self._encoded = tuple(value.encode() for value in values)
        self._values = tuple(values)

    def accepts(self, sent: bytes) -> bool:
        """Whether this is one of the values; compares each one, in constant time."""
        matches = [hmac.compare_digest(sent, each) for each in self._encoded]
        return any(matches)

    async def accepts_newest(self, sent: bytes) -> bool:
        """The same after a reload, for a value that is otherwise unknown: it may be newer than the
        last one."""
        await self.reload()
        return self.accepts(sent)

    def __repr__(self) -> str:
        return f"Secret({len(self._values)} values)"


class AnyOf(_Values):
    """The values of several secrets."""

    def __init__(self, *secrets: Sequence[str]) -> None:
        self._secrets = secrets

    @property
    def _values(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(value for secret in self._secrets for value in secret)


def as_secret(values: Sequence[str]) -> Secret:
    return values if isinstance(values, Secret) else Secret(values)
