"""One call to the API, with its retries, as a flow."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from sandyard_client.errors import ConnectionFailedError, UncertainOutcomeError
from sandyard_client.retrying import RetryPolicy, delay_before, may_repeat
from sandyard_client.steps import Done, Emit, Flow, Open, Read, Sleep, Stream, advance, send
from sandyard_client.wire import Answer, Lost, Request

T = TypeVar("T")

NEVER_SENT = "never_sent"
"""Marks an interrupt that came before any attempt reached the server."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Sends requests with one retry policy. Clock and randomness are fields, so that tests can
    replace them."""

    policy: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Callable[[], float] = time.monotonic
    draw: Callable[[float, float], float] = random.uniform
    on_retry: Callable[[str], object] | None = None
    """Called with the reason before a call is retried."""

    def until(self, seconds: float) -> float:
        return self.clock() + seconds

    def within(self, seconds: float) -> "Calls":
        """The same, with this many seconds for each call including its retries."""
        return replace(self, policy=replace(self.policy, within_sec=max(0.0, seconds)))

    def call(self, request: Request) -> Flow[Answer]:
        """The successful response. ApiError if the server refuses; ConnectionFailedError if there
        is no response; UncertainOutcomeError if a response was lost and the call must not be
        repeated."""
        outcome = yield from self._tried(request, send)
        assert isinstance(outcome, Answer)  # noqa: S101 - `send` returns this
        return outcome

    def open(self, request: Request) -> Flow[Stream]:
        """The same for a streamed response."""
        outcome = yield from self._tried(request, _open)
        assert isinstance(outcome, Stream)  # noqa: S101 - `_open` returns this
        return outcome

    def json(self, request: Request) -> Flow[Any]:
        answer = yield from self.call(request)
        return answer.json()

    def pages(self, request: Request, key: str, *, limit: int | None = None) -> Flow[None]:
        """Emits each item of a listing, page by page, up to `limit`."""
        cursor: str | None = None
        emitted = 0
        while True:
            page = yield from self.json(replace(request, query={**request.query, "cursor": cursor}))
            for item in page[key]:
                if emitted == limit:
                    return
                emitted += 1
                yield Emit(item)
            cursor = page.get("next_cursor")
            if cursor is None or emitted == limit:
                return

    def _tried(
        self, request: Request, once: "Callable[[Request], Flow[Answer | Stream | Lost]]"
    ) -> Flow[Answer | Stream]:
        until = self.until(self.policy.within_sec)
        attempt = 0
        may_be_done = False
        while True:
            outcome = yield from once(request)
            if isinstance(outcome, Stream) or (isinstance(outcome, Answer) and outcome.is_success):
                return outcome
            attempt += 1
            delay = self._delay(request, outcome, attempt, until)
            if delay is None:
                raise _failure(request, outcome, may_be_done=may_be_done)
            may_be_done = may_be_done or _is_undecided(outcome)
            if self.on_retry is not None:
                self.on_retry(_reason(outcome))
            yield from _paused(delay, may_be_done=may_be_done)

    def _delay(
        self, request: Request, outcome: Answer | Lost, attempt: int, until: float
    ) -> float | None:
        """None if it is not retried: not allowed, or not in time."""
        if not may_repeat(request, outcome):
            return None
        now = datetime.now(UTC)
        delay = delay_before(attempt, outcome, self.policy, now=now, draw=self.draw)
        return delay if self.clock() + delay < until else None


def chunks(stream: Stream) -> Flow[bytes | None]:
    """The next bytes of a stream, None at its end. ConnectionFailedError if it is interrupted."""
    piece: bytes | Lost | None = yield Read(stream)
    if isinstance(piece, Lost):
        raise ConnectionFailedError(f"The answer broke off: {piece.reason}.")
    return piece


def streamed(calls: Calls, request: Request) -> Flow[None]:
    """Emits the response's bytes as they arrive. ConnectionFailedError if they are interrupted."""
    stream = yield from calls.open(request)
    while (piece := (yield from chunks(stream))) is not None:
        yield Emit(piece)


def consumed(flow: Flow[T], take: Callable[[Any], object]) -> Flow[T]:
    """The flow, with each value it emits passed to `take`."""
    step = advance(flow)
    while not isinstance(step, Done):
        if isinstance(step, Emit):
            take(step.value)
            step = advance(flow)
            continue
        try:
            result = yield step
        except BaseException as error:
            step = advance(flow, error=error)
        else:
            step = advance(flow, result)
    return step.value


def emitted(flow: Flow[None]) -> Flow[list[Any]]:
    """Everything that a flow emits, as a list."""
    found: list[Any] = []
    yield from consumed(flow, found.append)
    return found


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _open(request: Request) -> Flow[Answer | Stream | Lost]:
    outcome: Answer | Stream | Lost = yield Open(request)
    return outcome


def _paused(seconds: float, *, may_be_done: bool) -> Flow[None]:
    try:
        yield Sleep(seconds)
    except BaseException as error:
        if not may_be_done:
            setattr(error, NEVER_SENT, True)
        raise


def _is_undecided(outcome: Answer | Lost) -> bool:
    """Whether the server may have carried out the call."""
    return outcome.was_sent if isinstance(outcome, Lost) else outcome.status >= 500


def _reason(outcome: Answer | Lost) -> str:
    return outcome.reason if isinstance(outcome, Lost) else str(outcome.error())


def _failure(request: Request, outcome: Answer | Lost, *, may_be_done: bool) -> Exception:
    if isinstance(outcome, Answer):
        return replace(outcome.error(), may_be_done=may_be_done)
    if outcome.was_sent and not request.is_repeatable:
        return UncertainOutcomeError(
            f"{request.method} {request.path}: the answer was lost ({outcome.reason}). It may have "
            "been carried out, and is not repeated."
        )
    message = f"{request.method} {request.path}: {outcome.reason}"
    return ConnectionFailedError(message, was_sent=may_be_done or outcome.was_sent)
