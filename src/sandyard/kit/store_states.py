"""Whether a part's store may be used, and the right to use it that every process renews.

A store is open unless its state says otherwise. A move to another engine changes the state; within
RIGHT_SEC no process uses the store any more, as each rereads the state before its right ends. The
check costs a call two comparisons; the right is renewed in the background.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from sandyard.kit.errors import ConflictError, UnavailableError
from sandyard.kit.wired import wired

RIGHT_SEC = 5.0
"""How long a process may use a store after it has begun to read that the store is open."""
_RENEW_SHARE = 0.4
"""A right is renewed when this much of it has passed, and if that fails, again every second."""
_RETRY_SEC = 1.0
_RETRY_AFTER_SEC = 5
_REFUSED_SEC = 0.5
"""For this long a refusal is not read again, so that refused calls cost the store little."""


class Phase(StrEnum):
    OPEN = "open"
    MOVING = "moving"
    """The source of a move: its data is being copied."""
    MOVED = "moved"
    """The source of a move that has ended, or is about to: the copy is complete and checked."""
    FILLING = "filling"
    """The target of a move, until it is opened."""
    RETURNED = "returned"
    """The target of a move that was taken back."""


@dataclass(frozen=True, slots=True)
class StoreState:
    phase: Phase
    move_id: str = ""
    other: str = ""
    """The other side of the move: its engine, and where it is."""
    at: int = 0
    done: Mapping[str, Any] = field(default_factory=dict)
    """What a target has already: by table, the last key that was copied, or True."""

    @property
    def other_engine(self) -> str:
        return self.other.partition(" ")[0]


class StoreStates(Protocol):
    """The state of one part's store. Every method raises UnavailableError when the engine is
    down."""

    async def read(self) -> StoreState | None:
        """None if it was never set: the store is open."""

    async def change(self, before: StoreState | None, after: StoreState) -> None:
        """Replace the state that was read as `before`; MoveConflictError if it is another now."""

    async def is_empty(self) -> bool:
        """Whether the store has no event, and so nothing that ever changed."""


class StoreMovingError(UnavailableError):
    """The data is being moved to another engine, or was moved there. Try again shortly."""


class StoreElsewhereError(UnavailableError):
    """The configured engine is empty, and the one used before still has the data."""


class MoveConflictError(ConflictError):
    """Another move of this store is in progress."""


_has_right: ContextVar[bool] = ContextVar("has_right", default=False)


@contextmanager
def in_any_state() -> Iterator[None]:
    """Stores that are opened in this block can be used whatever their state: for commands that
    create, migrate or move them."""
    token = _has_right.set(True)
    try:
        yield
    finally:
        _has_right.reset(token)


def needs_right() -> bool:
    return not _has_right.get()


@wired
class WriteRight:
    """The right of this process to use a store, which ends by itself.

    It counts from before the state was read, by two clocks: one stands still while a process is
    suspended with its machine, as a Lambda function is, and the other one may be set back.

    `check_unset` is called once, if no state was ever set; it may raise."""

    part: str
    read: Callable[[], Awaitable[StoreState | None]]
    lasts_sec: float = RIGHT_SEC
    check_unset: Callable[[], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        self._ends_at = self._wall_ends_at = self._renew_at = self._refused_until = 0.0
        self._refusal: UnavailableError | None = None
        self._renewal: asyncio.Task[None] | None = None

    def is_valid(self) -> bool:
        now = time.monotonic()
        if now >= self._ends_at or time.time() >= self._wall_ends_at:
            return False
        if now >= self._renew_at:
            self._renew_at = now + _RETRY_SEC
            self._begin_renewal()
        return True

    async def renew(self) -> None:
        """Return with a valid right, or raise StoreMovingError, StoreElsewhereError or
        UnavailableError."""
        if self._refusal is not None and time.monotonic() < self._refused_until:
            raise self._refusal
        await asyncio.shield(self._begin_renewal())

    async def end(self) -> None:
        if self._renewal is not None and not self._renewal.done():
            self._renewal.cancel()
            await asyncio.wait([self._renewal])

    def _begin_renewal(self) -> "asyncio.Task[None]":
        loop, renewal = asyncio.get_running_loop(), self._renewal
        if renewal is None or renewal.done() or renewal.get_loop() is not loop:
            renewal = self._renewal = loop.create_task(self._renew())
            renewal.add_done_callback(_forget_failure)
        return renewal

    async def _renew(self) -> None:
        now, wall = time.monotonic(), time.time()
        state = await self.read()
        if state is not None and state.phase is not Phase.OPEN:
            self._refuse(_refusal(self.part, state))
        if state is None and self.check_unset is not None:
            try:
                await self.check_unset()
            except StoreElsewhereError as error:
                self._refuse(error)
            self.check_unset = None
        self._refusal = None
        self._ends_at, self._wall_ends_at = now + self.lasts_sec, wall + self.lasts_sec
        self._renew_at = now + _RENEW_SHARE * self.lasts_sec

    def _refuse(self, error: UnavailableError) -> None:
        self._refusal, self._refused_until = error, time.monotonic() + _REFUSED_SEC
        self._ends_at = 0.0
        raise error


def _forget_failure(renewal: "asyncio.Task[None]") -> None:
    """A renewal in the background may fail: the right then ends, and the next call reports why."""
    with suppress(asyncio.CancelledError):
        renewal.exception()


def _refusal(part: str, state: StoreState) -> StoreMovingError:
    engine = state.other_engine
    message = {
        Phase.MOVING: f"The data of {part} is being moved to {engine}. Try again shortly.",
        Phase.MOVED: f"The data of {part} was moved to {engine}. Use the settings of {engine}.",
        Phase.FILLING: f"The data of {part} is being moved here from {engine}. Try again shortly.",
        Phase.RETURNED: f"A move of {part} from {engine} to here was taken back. Use {engine}.",
    }[state.phase]
    return StoreMovingError(message, retry_after=_RETRY_AFTER_SEC, reason=state.other)
