"""What may be decided about sign-ups."""

from dataclasses import replace
from datetime import timedelta

import pytest

from sandyard.kit.changes.events import Effect
from sandyard.kit.changes.transitions import Cause
from sandyard.platform.accounts.errors import (
    InvalidVerificationTokenError,
)
from sandyard.platform.accounts.model import (
    hash_token,
)
from sandyard.platform.accounts.signups.model import (
    VERIFICATION_LIFETIME,
    PendingSignup,
    Taken,
    create_signup,
    expire_signup,
    renew_signup,
    verify_signup,
)

ANONYMOUS = Cause("anonymous", 1_800_000_000_000)
END = replace(
    ANONYMOUS, at_ms=ANONYMOUS.at_ms + int(VERIFICATION_LIFETIME / timedelta(milliseconds=1))
)
BEFORE_END = replace(END, at_ms=END.at_ms - 1)
FREE = Taken(email=False, username=False)
TAKEN = (Taken(email=True, username=False), Taken(email=False, username=True))


def signup(signup_id: str = "sgn-1") -> PendingSignup:
    return create_signup(
        signup_id=signup_id,
        email="Ann@Example.com",
        username="Ann",
        full_name="Ann",
        token="token",
        password_hash="hash",
        cause=ANONYMOUS,
    ).result


def test_a_new_sign_up_lasts_a_day_and_its_event_holds_no_secret() -> None:
    made = create_signup(
        signup_id="sgn-1",
        email="Ann@Example.com",
        username="Ann",
        full_name=None,
        token="token",
        password_hash="hash",
        cause=ANONYMOUS,
    )
    assert made.result.email == "ann@example.com"
    assert made.result.verification_token == hash_token("token")
    assert made.result.expires_at == ANONYMOUS.at + timedelta(hours=24)
    [event] = made.events
    assert (event.kind, event.account_id) == ("signup.created", None)
    assert set(event.data) == {
        *("signup_id", "email", "username", "full_name", "created_at", "expires_at"),
    }


def test_a_sign_up_is_renewed_while_it_could_be_verified() -> None:
    renewed = renew_signup(signup(), FREE, token="second", cause=BEFORE_END)
    assert renewed is not None
    assert renewed.result.verification_token == hash_token("second")
    assert renewed.result.expires_at == BEFORE_END.at + VERIFICATION_LIFETIME
    assert renewed.events[0].kind == "signup.renewed"
    assert set(renewed.events[0].data) == {"expires_at"}
    assert renew_signup(signup(), FREE, token="second", cause=END) is None
    for taken in TAKEN:
        assert renew_signup(signup(), taken, token="second", cause=ANONYMOUS) is None


def test_a_verification_makes_the_account_and_ends_all_sign_ups_of_the_address() -> None:
    mine, other = signup(), signup("sgn-2")
    account, ended = verify_signup(mine, [other, mine], FREE, account_id="1" * 12, cause=BEFORE_END)
    assert account.result.username == "Ann"
    assert account.result.password_hash == "hash"
    kinds = [(each.before, each.after, each.events[0].kind) for each in ended]
    assert kinds == [(mine, None, "signup.verified"), (other, None, "signup.expired")]
    assert {each.events[0].effect for each in ended} == {Effect.REMOVED}


def test_what_is_too_late_or_taken_is_not_verified() -> None:
    with pytest.raises(InvalidVerificationTokenError):
        verify_signup(signup(), [], FREE, account_id="1" * 12, cause=END)
    for taken in TAKEN:
        with pytest.raises(InvalidVerificationTokenError):
            verify_signup(signup(), [], taken, account_id="1" * 12, cause=ANONYMOUS)


def test_a_sign_up_expires_with_its_time() -> None:
    assert expire_signup(signup(), BEFORE_END) is None
    expired = expire_signup(signup(), END)
    assert expired is not None
    assert expired.after is None
    assert expired.events[0].kind == "signup.expired"
