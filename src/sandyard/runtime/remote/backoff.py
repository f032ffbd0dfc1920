"""Backoff for a service, or for one machine, after a refused or failed call."""

import asyncio
import random
import time
from collections.abc import Callable
from copy import copy
from dataclasses import KW_ONLY, dataclass, field

from sandyard.runtime.remote.errors import BackingOffError, Refusal

_FIRST_SEC = 0.25
_LONGEST_SEC = 8.0
_LONGEST_RETRY_AFTER_SEC = 60.0
_MANY = 1000
"""The number of sandboxes tracked before stale entries are removed."""


@dataclass(slots=True, eq=False)
class Backoff:
    """Shared by all calls to a service with one key, or by all calls into one machine. After a 429
    or 5xx no call is sent before the time that the response gave, at most a minute. If it gave
    none, the delay doubles with each refusal and has jitter, so that servers do not retry at the
    same time."""

    _: KW_ONLY
    first_sec: float = _FIRST_SEC
    longest_sec: float = _LONGEST_SEC
    now: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    _refusals: int = field(default=0, init=False)
    _refusal: Refusal = field(default="failed", init=False)
    _not_before: float = field(default=0.0, init=False)

    @property
    def left_sec(self) -> float:
        """Seconds until the next call may be sent."""
        return max(0.0, self._not_before - self.now())

    @property
    def is_long_over(self) -> bool:
        """True if nothing was refused in the last minute; the next refusal then counts as the
        first."""
        return self.now() - self._not_before > _LONGEST_RETRY_AFTER_SEC

    async def wait(self, *, within_sec: float) -> None:
        """Return when a call may be sent; raise BackingOffError at once if that exceeds the
        limit."""
        while (left := self.left_sec) > 0:
            if left >= within_sec:
                raise BackingOffError(self._refusal, left)
            await asyncio.sleep(left)

    def refused(self, refusal: Refusal, *, retry_after: int | None, sent_at: float) -> None:
        """Record a refused call. Concurrent calls that are refused count once."""
        if sent_at >= self._not_before:
            self._refusals += 1
        self._refusal = refusal
        pause = self._pause() if retry_after is None else min(retry_after, _LONGEST_RETRY_AFTER_SEC)
        self._not_before = max(self._not_before, self.now() + pause)

    def answered(self) -> None:
        self._refusals = 0

    def sending_at(self) -> float:
        return self.now()

    def _pause(self) -> float:
        doubled: float = self.first_sec * 2 ** min(max(self._refusals, 1) - 1, 20)
        return min(doubled, self.longest_sec) * (1 + self.chance()) / 2


class SandboxBackoffs:
    """One per sandbox: a refusal by one sandbox's server says nothing about the others."""

    def __init__(self, like: Backoff) -> None:
        self._like = copy(like)
        self._by_sandbox: dict[str, Backoff] = {}

    def of(self, sandbox_id: str) -> Backoff:
        found = self._by_sandbox.get(sandbox_id)
        if found is None:
            self._forget_old()
            found = self._by_sandbox[sandbox_id] = copy(self._like)
        return found

    def _forget_old(self) -> None:
        if len(self._by_sandbox) >= _MANY:
            recent = {key: each for key, each in self._by_sandbox.items() if not each.is_long_over}
            self._by_sandbox = recent
