"""Delivery of events to sinks: filters, retries, webhooks and every decision about them. No I/O."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from sandyard.broker.delivery.errors import WebhookNotFoundError
from sandyard.kit.changes.event_kinds import matches
from sandyard.kit.changes.events import LoggedEvent
from sandyard.kit.changes.transitions import SECRET, Cause, Transition, changed, created, removed
from sandyard.kit.ids import first_event_id

OVERLAP_MS = 24 * 3600 * 1000
"""How long the previous secret also signs after a rotation."""
SECRET_BYTES = 32
_PREFIX = "whsec_"


def wants(kinds: Sequence[str], kind: str) -> bool:
    """Whether a filter accepts this kind of event; an empty one accepts all."""
    return not kinds or any(matches(each, kind) for each in kinds)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A failed event is retried with growing delays, until the sink is given up."""

    first_sec: float = 1
    longest_sec: float = 300
    give_up_sec: float = 24 * 3600

    def delay(self, failures: int, chance: float) -> float:
        longest: float = min(self.longest_sec, self.first_sec * 2 ** min(failures - 1, 30))
        return longest * (0.5 + chance / 2)

    def is_over(self, *, failing_since_ms: int, now_ms: int) -> bool:
        return now_ms - failing_since_ms >= self.give_up_sec * 1000


@dataclass(frozen=True, slots=True)
class StreamState:
    """A sink's position in the log of one part. Data, without events."""

    sink: str
    part: str
    since_ms: int
    """Events written before this time are not sent."""
    position: str | None = None
    """All events up to here are delivered."""
    failing_since_ms: int | None = None
    """The start of the current failures, while the position does not advance."""
    last_error: str | None = None

    def is_due(self, logged: LoggedEvent) -> bool:
        return logged.event_id >= first_event_id(self.since_ms)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to deliver an event to a webhook."""

    attempt_id: str
    """Sorts by time."""
    webhook_id: str
    event_id: str
    kind: str
    subject: str
    at_ms: int
    duration_ms: int
    status: int | None = None
    """The receiver's status code; None without a response."""
    error: str | None = None


class Sink(Protocol):
    """Receives events; each is sent until it is accepted, so it may arrive twice."""

    @property
    def name(self) -> str:
        """Its id, the same in every process and after restarts."""

    @property
    def since_ms(self) -> int | None:
        """The start of its events; None: when the sink is first seen."""

    @property
    def kinds(self) -> Sequence[str]:
        """The filter; empty accepts all."""

    @property
    def parallel(self) -> int:
        """How many events of different subjects may be sent concurrently."""

    async def send(self, logged: LoggedEvent) -> None:
        """Return once the sink has the event. Raises SinkError if that is not certain."""

    async def give_up(self, reason: str) -> bool:
        """The sink has failed for too long. Returns whether sending stops."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that events are sent to."""

    SUBJECT: ClassVar[str] = "webhook_id"
    OWNER: ClassVar[str | None] = None

    webhook_id: str
    url: str
    created_at_ms: int
    kinds: str = ""
    """The filter: comma-separated kinds of events; empty accepts all."""
    note: str | None = None
    is_enabled: bool = True
    disabled_reason: str | None = None
    secret: str = field(default="", metadata=SECRET)
    old_secret: str | None = field(default=None, metadata=SECRET)
    old_secret_until_ms: int | None = None
    sequence: int = 0

    @property
    def kind_list(self) -> Sequence[str]:
        return [each for each in self.kinds.split(",") if each]

    def secrets_at(self, now_ms: int) -> Sequence[str]:
        if self.old_secret is None or now_ms >= (self.old_secret_until_ms or 0):
            return [self.secret]
        return [self.secret, self.old_secret]


def decide_created(webhook: Webhook, cause: Cause) -> Transition[Webhook]:
    return created(webhook, "webhook.created", cause)


def decide_changed(
    webhook: Webhook | None, cause: Cause, **changes: Any
) -> Transition[Webhook] | None:
    """None leaves a field unchanged; returns None if nothing changes. Enabling it clears the reason
    why it was disabled."""
    before = _known(webhook)
    after = replace(before, **{name: new for name, new in changes.items() if new is not None})
    if after.is_enabled != before.is_enabled:
        reason = None if after.is_enabled else "disabled by an operator"
        after = replace(after, disabled_reason=reason)
    if after == before:
        return None
    if before.is_enabled and not after.is_enabled:
        return changed(before, after, "webhook.disabled", cause)
    return changed(before, after, "webhook.changed", cause)


def decide_given_up(
    webhook: Webhook | None, reason: str, cause: Cause
) -> Transition[Webhook] | None:
    """It has failed for too long: nothing is sent until an operator enables it. None if it is
    disabled already."""
    before = _known(webhook)
    after = replace(before, is_enabled=False, disabled_reason=reason)
    if not before.is_enabled:
        return None
    return changed(before, after, "webhook.disabled", cause.because(reason))


def decide_rotated(webhook: Webhook | None, secret: str, cause: Cause) -> Transition[Webhook]:
    """A new secret. The previous one also signs for a day, so that receivers can switch."""
    before = _known(webhook)
    after = replace(
        before,
        secret=secret,
        old_secret=before.secret,
        old_secret_until_ms=cause.at_ms + OVERLAP_MS,
    )
    return changed(before, after, "webhook.secret_rotated", cause)


def decide_removed(webhook: Webhook | None, cause: Cause) -> Transition[Webhook]:
    return removed(_known(webhook), "webhook.deleted", cause)


def _known(webhook: Webhook | None) -> Webhook:
    if webhook is None:
        raise WebhookNotFoundError
    return webhook


def secret_of(random: bytes) -> str:
    """A secret in the format of Standard Webhooks."""
    return _PREFIX + base64.b64encode(random).decode()


def signatures(secrets: Sequence[str], message_id: str, at_sec: int, body: bytes) -> str:
    """`webhook-signature` of Standard Webhooks: one per secret, space-separated."""
    signed = f"{message_id}.{at_sec}.".encode() + body
    return " ".join(f"v1,{_signature(each, signed)}" for each in secrets)


def _signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
