"""A network that delays, loses and doubles calls, and the engine behind it that may be away."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TypeVar

from sandyard.kit.errors import UnavailableError
from tests.simulation.loop import Process

T = TypeVar("T")

_LOST_SEC = 5.0
"""After this a caller gives up an answer."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How often each goes wrong, out of one."""

    request_lost: float = 0.0
    answer_lost: float = 0.0
    throttled: float = 0.0
    doubled: float = 0.0
    late: float = 0.0

    @classmethod
    def names(cls) -> list[str]:
        return [each.name for each in fields(cls)]


CALM = Faults()
STORM = Faults(request_lost=0.04, answer_lost=0.04, throttled=0.04, doubled=0.1, late=0.03)


@dataclass(slots=True)
class Network:
    """Between all replicas and one service; the seed decides what becomes of each call."""

    rng: random.Random
    faults: Faults = CALM
    is_away: bool = False
    happened: Counter[str] = field(default_factory=Counter)

    async def call(
        self,
        process: Process,
        work: Callable[[], T],
        *,
        lost: Callable[[str], Exception],
        may_double: bool = False,
    ) -> T:
        """Let the service do `work` once; if it may be doubled, sometimes twice. Raises what `lost`
        makes of a reason."""
        await self.send(process, lost=lost)
        result = work()
        if may_double and self._happens("doubled"):
            await self._travel(process)
            work()
        await self.answer(process, lost=lost)
        return result

    async def send(self, process: Process, *, lost: Callable[[str], Exception]) -> None:
        """Return when the call has reached the service."""
        await self._travel(process)
        if self.is_away or self._happens("request_lost"):
            await self.wait(process, _LOST_SEC)
            raise lost("no answer")
        if self._happens("throttled"):
            raise lost("throttled")

    async def answer(self, process: Process, *, lost: Callable[[str], Exception]) -> None:
        """Return when the answer has reached the caller."""
        if self._happens("answer_lost"):
            await self.wait(process, _LOST_SEC)
            raise lost("the answer was lost")
        await self._travel(process)

    def _happens(self, fault: str) -> bool:
        chance: float = getattr(self.faults, fault)
        happens = self.rng.random() < chance
        self.happened[fault] += happens
        return happens

    async def _travel(self, process: Process) -> None:
        seconds = self.rng.uniform(0.0005, 0.005)
        if self._happens("late"):
            seconds = self.rng.uniform(0.5, 4.0)
        await self.wait(process, seconds)

    async def wait(self, process: Process, seconds: float) -> None:
        """A dead process gets no further: neither to the service nor to its own next line."""
        if process.is_dead:
            raise asyncio.CancelledError
        await asyncio.sleep(seconds)
        if process.is_dead:
            raise asyncio.CancelledError


def unavailable(reason: str) -> UnavailableError:
    return UnavailableError(f"The simulated engine does not respond: {reason}.", reason=reason)
