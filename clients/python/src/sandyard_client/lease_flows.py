"""Acquiring, renewing and releasing a lease, as flows.

A lease belongs to a track and a key, so a repeated call with them finds the result of the lost one.
Waiting uses a ticket (`POST /v1/queue`): a call that waits in the server would still take a sandbox
for a caller that has gone.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sandyard_client.calls import NEVER_SENT, Calls, without_none
from sandyard_client.decoding import decode
from sandyard_client.errors import (
    ApiError,
    ConfigurationError,
    ConflictError,
    ConnectionFailedError,
    ForbiddenError,
    LeaseLostError,
    NoSandboxesAvailableError,
    NotFoundError,
    RateLimitedError,
    SandyardClientError,
    UnauthorizedError,
    UnavailableError,
)
from sandyard_client.models import LeaseAnswer, TicketAnswer
from sandyard_client.steps import Flow, Sleep
from sandyard_client.wire import Answer, Credential, Request

SETTLE_SEC = 15.0
"""For settling a lease whose caller has given up."""
_POLL_SEC = 2.0
_NEXT_POLL_SEC = 0.5
_ENDED = frozenset({"ALLOCATION_EXPIRED", "NOT_SANDBOX_OWNER", "TRANSITION_NOT_ALLOWED"})

Waiting = Callable[[TicketAnswer], object]


@dataclass(frozen=True, slots=True)
class LeaseWish:
    """What to lease, and for which track and key."""

    track: str
    key: str | None = None
    name_prefix: str | None = None
    minutes: int | None = None
    label: str | None = None
    urgency: int | None = None

    def request(self, method: str, path: str, **headers: str) -> Request:
        wished = {
            "X-Track-ID": self.track,
            "Idempotency-Key": self.key,
            "X-Sandbox-Name-Prefix": self.name_prefix,
            "X-Lab-Minutes": None if self.minutes is None else str(self.minutes),
            "X-Instruqt-Track-ID": self.label,
            "Priority": None if self.urgency is None else f"u={self.urgency}",
        }
        return Request(
            method,
            path,
            Credential.TRACK,
            is_repeatable=True,
            headers={**without_none(wished), **headers},
        )


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A lease as last reported, and the server's clock at that time."""

    lease: LeaseAnswer
    told_at: datetime

    @classmethod
    def of(cls, answer: Answer) -> "LeaseState":
        return cls(decode(LeaseAnswer, answer.json()), answer.server_time or datetime.now(UTC))

    @property
    def seconds_left(self) -> float:
        """Since the last report, by the server's clock: the caller's may be wrong."""
        return self.lease.expires_at - self.told_at.timestamp()


def take(
    calls: Calls, wish: LeaseWish, *, wait_sec: float, on_wait: Waiting | None
) -> Flow[LeaseState]:
    """One lease, or none: if it fails or is interrupted and the server may have created one, that
    lease is found and released."""
    try:
        if wait_sec > 0:
            return (yield from _queue(calls, wish, wait_sec, on_wait))
        answer = yield from calls.call(wish.request("POST", "/v1/allocate"))
        return LeaseState.of(answer)
    except BaseException as error:
        if not _is_decided(error):
            yield from settle(calls, wish, error)
        elif wait_sec > 0 and isinstance(error, ApiError):
            yield from _leave_quietly(calls.within(SETTLE_SEC), wish)
        raise


def _queue(
    calls: Calls, wish: LeaseWish, wait_sec: float, on_wait: Waiting | None
) -> Flow[LeaseState]:
    until = calls.until(wait_sec)
    while True:
        left = until - calls.clock()
        answer = yield from _ask(calls.within(max(left, SETTLE_SEC)), wish)
        if answer is not None and answer.status != 202:
            return LeaseState.of(answer)
        pause = _POLL_SEC
        if answer is not None:
            ticket = decode(TicketAnswer, answer.json())
            if on_wait is not None:
                on_wait(ticket)
            pause = _NEXT_POLL_SEC if ticket.position <= 1 else _POLL_SEC
        left = until - calls.clock()
        if left <= 0:
            raise NoSandboxesAvailableError(
                409, "NO_SANDBOXES_AVAILABLE", f"No sandbox became free within {wait_sec:g} s."
            )
        yield Sleep(min(pause, left))


def _ask(calls: Calls, wish: LeaseWish) -> Flow[Answer | None]:
    """None if nothing is available now."""
    try:
        return (yield from calls.call(wish.request("POST", "/v1/queue")))
    except ConflictError as error:
        if error.retry_after is None:
            raise
        return None


def _is_decided(error: BaseException) -> bool:
    """Whether there is certainly no lease: the server said so, or was never reached."""
    if isinstance(error, ConnectionFailedError):
        return not error.was_sent
    if isinstance(error, RateLimitedError | UnauthorizedError | ForbiddenError):
        return not error.may_be_done  # refused before the lease was looked up
    is_refused = isinstance(error, ApiError) and not isinstance(error, UnavailableError)
    return is_refused or isinstance(error, ConfigurationError)


def settle(calls: Calls, wish: LeaseWish, cause: BaseException) -> Flow[None]:
    """The caller will not use the lease: leave the queue, and release the lease if there is one. If
    that fails, a note is added to the cause; a cause with a note is not settled again."""
    if getattr(cause, "__notes__", ()) or getattr(cause, NEVER_SENT, False):
        return
    quickly = calls.within(SETTLE_SEC)
    try:
        yield from _leave(quickly, wish)
        found = yield from find(quickly, wish)
        if found is not None:
            yield from give_up(quickly, wish.track, found.lease.sandbox_id)
    except SandyardClientError as error:
        cause.add_note(
            f"Whether track {wish.track} has a lease now is not known ({error}). Ask again with "
            "the same track and key to have it, else it ends by itself at its time."
        )


def _leave_quietly(calls: Calls, wish: LeaseWish) -> Flow[None]:
    """An abandoned ticket expires by itself, so failures are ignored."""
    try:
        yield from _leave(calls, wish)
    except SandyardClientError:
        return


def _leave(calls: Calls, wish: LeaseWish) -> Flow[None]:
    try:
        yield from calls.call(wish.request("DELETE", "/v1/queue"))
    except NotFoundError:
        return


def find(calls: Calls, wish: LeaseWish) -> Flow[LeaseState | None]:
    """The live lease of the track and key, if there is one. A claim for a name that no sandbox has
    returns an existing lease, and never creates one."""
    nowhere = {"X-Sandbox-Name-Prefix": f"none-{uuid.uuid4().hex}"}
    try:
        answer = yield from calls.call(wish.request("POST", "/v1/allocate", **nowhere))
    except ConflictError:
        return None
    return LeaseState.of(answer)


def give_up(calls: Calls, track: str, sandbox_id: str) -> Flow[None]:
    """Returns when the server has confirmed it, or reports that the lease is already over."""
    try:
        yield from calls.call(_about(track, sandbox_id, "mark-for-deletion"))
    except NotFoundError:
        return
    except ForbiddenError as error:
        if error.code != "ALLOCATION_EXPIRED":
            raise


def extend(calls: Calls, track: str, sandbox_id: str, minutes: int) -> Flow[LeaseState]:
    """LeaseLostError if it has ended."""
    key = {"Idempotency-Key": f"extend-{uuid.uuid4().hex}"}
    return (yield from _changed(calls, track, sandbox_id, "extend", {"minutes": minutes}, key))


def replace_sandbox(calls: Calls, track: str, sandbox_id: str, reason: str) -> Flow[LeaseState]:
    return (yield from _changed(calls, track, sandbox_id, "replace", {"reason": reason}, {}))


def _changed(
    calls: Calls, track: str, sandbox_id: str, action: str, body: Any, headers: dict[str, str]
) -> Flow[LeaseState]:
    try:
        answer = yield from calls.call(_about(track, sandbox_id, action, body, headers))
    except (ForbiddenError, ConflictError, NotFoundError) as error:
        if isinstance(error, NotFoundError) or error.code in _ENDED:
            raise LeaseLostError(f"The lease of {sandbox_id} has ended: {error}") from error
        raise
    return LeaseState.of(answer)


def renew(
    calls: Calls,
    track: str,
    current: Callable[[], LeaseState],
    minutes: int,
    tell: Callable[[LeaseState], object],
) -> Flow[None]:
    """Keep the end at least this many minutes ahead until the flow is stopped. LeaseLostError when
    the lease ends, also because the server grants no extension. `current` returns the holder's
    current lease: the sandbox may be replaced meanwhile."""
    while True:
        state = current()
        yield Sleep(max(0.0, state.seconds_left - minutes * 60))
        if current() is not state:
            continue
        try:
            tell((yield from _renewed(calls, track, state, minutes)))
        except LeaseLostError:
            if current().lease.sandbox_id == state.lease.sandbox_id:
                raise


def _renewed(calls: Calls, track: str, state: LeaseState, minutes: int) -> Flow[LeaseState]:
    sandbox_id = state.lease.sandbox_id
    left = min(state.seconds_left, minutes * 60.0)
    patient = calls.within(max(SETTLE_SEC, left))
    try:
        return (yield from extend(patient, track, sandbox_id, minutes))
    except ConflictError as error:
        possible = int(error.details.get("possible_minutes") or 0)
        if possible >= 1:
            return (yield from extend(patient, track, sandbox_id, possible))
        yield Sleep(max(0.0, left))
        message = f"The lease of {sandbox_id} has ended: it could not be extended ({error.code})."
        raise LeaseLostError(message) from error


def _about(
    track: str,
    sandbox_id: str,
    action: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> Request:
    return Request(
        "POST",
        f"/v1/sandboxes/{sandbox_id}/{action}",
        Credential.TRACK,
        is_repeatable=True,
        headers={"X-Track-ID": track, **(headers or {})},
        json=body,
    )
