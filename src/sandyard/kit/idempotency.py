"""The record of a call with an idempotency key, and what a repeat of the call does."""

import hashlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from sandyard.kit.errors import ConflictError, InvalidError, UnavailableError
from sandyard.kit.ids import random_text, repeated_id, repeated_text, resource_id
from sandyard.kit.patterns import pattern

HEADER = "Idempotency-Key"
KEY_FORM = pattern(r"^[!-~]{1,128}$", "must be 1 to 128 ASCII characters, without spaces")
LASTS_SEC = 24 * 3600
"""How long a repeat gets the first answer, from the first call on."""
HELD_SEC = 10.0
"""A call that has not renewed its record for this long has died with its server."""


class InvalidIdempotencyKeyError(InvalidError):
    """Send `Idempotency-Key` at most once, with 1 to 128 visible ASCII characters."""


class IdempotencyKeyReusedError(ConflictError):
    """Another request was sent with this `Idempotency-Key` within 24 hours. Send a new key, or the
    same request as before."""


class OutcomeUnknownError(ConflictError):
    """The first call with this `Idempotency-Key` was interrupted, and it is not known whether it
    had its effect. Look for it; to do it again, send a new key."""


class AnswerNotStoredError(ConflictError):
    """The first call with this `Idempotency-Key` succeeded. Its answer is not stored: it is longer
    than 1 MiB, or your account has used up what is stored of long ones in a day. Look for what it
    made; to do it again, send a new key."""


class FirstCallRunsError(UnavailableError):
    """The first call with this `Idempotency-Key` is still running. Repeat the call to wait for its
    answer."""


@dataclass(frozen=True, slots=True)
class Record:
    """One call: it runs until it has a `status`."""

    record_id: str
    """A digest of who calls, the operation and the key."""
    request_hash: str
    content: str = field(repr=False)
    """Encrypted: the seed of what the call makes, then its answer; empty if that is not stored."""
    holder: str
    held_until: float
    expires_at: float
    status: int | None = None

    def answered(self, status: int, content: str) -> "Record":
        return replace(self, status=status, content=content)

    def held(self, holder: str, until: float) -> "Record":
        return replace(self, holder=holder, held_until=until)


class Step(Enum):
    """What a repeat does next."""

    ANSWER = "return the answer of the record"
    FORGET = "remove the record, whose time is over, and begin anew"
    RUN = "run it again, as the first call was interrupted"
    WAIT = "wait for the first call"


def next_step(found: Record, request_hash: str, now: float, *, finds_made: bool) -> Step:
    """IdempotencyKeyReusedError; OutcomeUnknownError for an interrupted call, unless another run of
    it `finds_made` what it has made."""
    if found.expires_at <= now:
        return Step.FORGET
    if found.request_hash != request_hash:
        raise IdempotencyKeyReusedError
    if found.status is not None:
        return Step.ANSWER
    if found.held_until > now:
        return Step.WAIT
    if not finds_made:
        raise OutcomeUnknownError
    return Step.RUN


class RecordStore(Protocol):
    """Every method raises UnavailableError if the engine is unavailable."""

    async def add(self, record: Record) -> bool:
        """False if there is one of this id."""

    async def find(self, record_id: str) -> Record | None: ...

    async def replace(self, before: Record, after: Record | None) -> bool:
        """Write or remove it; False if its holder or answer are not as `before` any more."""

    async def prune(self, *, now: float) -> int:
        """Remove expired records; returns their number."""


@dataclass(frozen=True, slots=True)
class RepeatableCall:
    """A call with a key, while it runs. The ids of what it makes come from its seed, so that a
    repeat after a crash finds what was made."""

    seed: str = field(repr=False)
    is_repeat: bool
    """Whether an earlier call with this key was interrupted."""
    _count: Iterator[int] = field(default_factory=itertools.count, init=False)

    def next_id(self, prefix: str) -> str:
        return repeated_id(prefix, self.seed, str(next(self._count)))

    def next_secret(self, letters: str, length: int) -> str:
        return repeated_text(letters, length, "secret", self.seed, str(next(self._count)))


_running: ContextVar[RepeatableCall | None] = ContextVar("repeatable_call", default=None)


@contextmanager
def running(call: RepeatableCall) -> Iterator[None]:
    token = _running.set(call)
    try:
        yield
    finally:
        _running.reset(token)


def new_id(prefix: str) -> str:
    """Of what the current call makes: a repeat of the call gives the same ids."""
    call = _running.get()
    return resource_id(prefix) if call is None else call.next_id(prefix)


def new_secret(letters: str, length: int) -> str:
    """The same for a secret."""
    call = _running.get()
    return random_text(letters, length) if call is None else call.next_secret(letters, length)


def is_repeat() -> bool:
    """Whether the current call may find what an interrupted one has made."""
    call = _running.get()
    return call is not None and call.is_repeat


def record_id(scope: str, operation: str, key: str) -> str:
    return hashlib.sha256("\n".join((scope, operation, key)).encode()).hexdigest()
