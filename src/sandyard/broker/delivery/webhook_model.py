"""Webhooks, and every decision about them. No I/O."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from sandyard.broker.delivery.errors import WebhookNotFoundError
from sandyard.kit.changes.transitions import SECRET, Cause, Transition, changed, created, removed

OVERLAP_MS = 24 * 3600 * 1000
"""How long the previous secret also signs after a rotation."""
SECRET_BYTES = 32
_PREFIX = "whsec_"


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
        """The secrets that sign now, newest first."""
        if self.old_secret is None or now_ms >= (self.old_secret_until_ms or 0):
            return [self.secret]
        return [self.secret, self.old_secret]


def decide_created(webhook: Webhook, cause: Cause) -> Transition[Webhook]:
    return created(webhook, "webhook.created", cause)


def decide_changed(
    webhook: Webhook | None,
    cause: Cause,
    *,
    url: str | None = None,
    kinds: str | None = None,
    note: str | None = None,
    is_enabled: bool | None = None,
) -> Transition[Webhook] | None:
    """None leaves a field unchanged; returns None if nothing changes. Enabling it clears the reason
    why it was disabled."""
    before = _known(webhook)
    after = replace(
        before,
        url=before.url if url is None else url,
        kinds=before.kinds if kinds is None else kinds,
        note=before.note if note is None else note,
        is_enabled=before.is_enabled if is_enabled is None else is_enabled,
    )
    if after.is_enabled != before.is_enabled:
        reason = None if after.is_enabled else "disabled by an operator"
        after = replace(after, disabled_reason=reason)
    if after == before:
        return None
    if before.is_enabled and not after.is_enabled:
        return changed(before, after, "webhook.disabled", cause)
    return changed(before, after, "webhook.changed", cause)


def decide_given_up(webhook: Webhook | None, reason: str, cause: Cause) -> Transition[Webhook]:
    """It has failed for too long: nothing is sent until an operator enables it."""
    before = _known(webhook)
    after = replace(before, is_enabled=False, disabled_reason=reason)
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
