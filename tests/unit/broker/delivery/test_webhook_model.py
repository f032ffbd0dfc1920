"""Decisions about webhooks, and signatures as Standard Webhooks has them."""

import pytest

from sandyard.broker.delivery.errors import WebhookNotFoundError
from sandyard.broker.delivery.model import (
    OVERLAP_MS,
    Webhook,
    decide_changed,
    decide_created,
    decide_given_up,
    decide_removed,
    decide_rotated,
    secret_of,
    signatures,
)
from sandyard.kit.changes.transitions import Cause

CAUSE = Cause("operator", 5000)
SECRET = secret_of(b"s" * 32)
HOOK = decide_created(Webhook("whk-1", "https://a.example.com", 5000, secret=SECRET), CAUSE).result


def test_no_event_has_a_secret() -> None:
    rotated = decide_rotated(HOOK, secret_of(b"n" * 32), CAUSE)
    given_up = decide_given_up(HOOK, "answered 500", CAUSE)
    assert given_up is not None
    for transition in (decide_created(HOOK, CAUSE), rotated, given_up):
        assert "whsec_" not in str([event.data for event in transition.events])


def test_what_does_not_change_is_no_transition() -> None:
    assert decide_changed(HOOK, CAUSE, url=HOOK.url, is_enabled=True) is None


def test_to_enable_clears_the_reason() -> None:
    disabled = decide_given_up(HOOK, "answered 500", CAUSE)
    assert disabled is not None
    assert disabled.events[0].kind == "webhook.disabled"
    assert disabled.events[0].reason == "answered 500"
    enabled = decide_changed(disabled.result, CAUSE, is_enabled=True)
    assert enabled is not None
    assert (enabled.result.is_enabled, enabled.result.disabled_reason) == (True, None)
    by_hand = decide_changed(HOOK, CAUSE, is_enabled=False)
    assert by_hand is not None
    assert by_hand.events[0].kind == "webhook.disabled"


def test_the_old_secret_signs_for_a_day() -> None:
    rotated = decide_rotated(HOOK, "whsec_bmV3", CAUSE).result
    assert rotated.secrets_at(5000 + OVERLAP_MS - 1) == ["whsec_bmV3", SECRET]
    assert rotated.secrets_at(5000 + OVERLAP_MS) == ["whsec_bmV3"]


def test_the_signature_is_that_of_the_specification() -> None:
    """The example in the specification's own libraries."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    signed = signatures([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "decide",
    [
        lambda: decide_changed(None, CAUSE),
        lambda: decide_rotated(None, SECRET, CAUSE),
        lambda: decide_given_up(None, "", CAUSE),
        lambda: decide_removed(None, CAUSE),
    ],
)
def test_of_an_unknown_one_nothing_is_decided(decide: object) -> None:
    with pytest.raises(WebhookNotFoundError):
        decide()  # type: ignore[operator]
