"""What of an ID token is believed, and what becomes of it here."""

from typing import Any

import pytest

from sandyard.kit.changes.transitions import Cause
from sandyard.platform.accounts.errors import EmailNotVerifiedError, InvalidOidcLoginError
from sandyard.platform.accounts.identity.model import (
    Identity,
    LoginRequest,
    identity_of,
    open_account,
)
from sandyard.platform.accounts.signups.model import (
    Taken,
    create_signup,
)

CAUSE = Cause("account:000000000001", 1_800_000_000_000)
CLAIMS = {
    "aud": "us",
    "nonce": "n",
    "email": "Ada.Lovelace@Example.com",
    "email_verified": True,
    "name": " Ada King ",
}


def identity(**changes: Any) -> Identity:
    return identity_of(CLAIMS | changes, client_id="us", nonce="n")


def test_the_challenge_is_that_of_rfc_7636() -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    request = LoginRequest("state", "nonce", verifier)
    assert request.code_challenge == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    assert verifier not in repr(request)


def test_an_identity_has_the_address_in_small_letters_and_a_name_that_is_allowed() -> None:
    assert identity() == Identity("ada.lovelace@example.com", "Ada.Lovelace", "Ada King")
    several = identity(aud=["us", "them"], azp="us")
    assert several.email == "ada.lovelace@example.com"


@pytest.mark.parametrize(
    ("preferred", "username"),
    [
        ("ada", "ada"),
        ("Ada <b>King</b>", "Ada-b-King-b"),
        ("ada@example.com", "ada"),
        ("é", "user"),
        ("a", "user-a"),
        ("x" * 300, "x" * 80),
        (None, "Ada.Lovelace"),
        ("", "Ada.Lovelace"),
    ],
)
def test_a_user_name_is_made_of_what_may_be_in_one(preferred: str | None, username: str) -> None:
    assert identity(preferred_username=preferred).username == username


@pytest.mark.parametrize(
    ("name", "full_name"),
    [("", None), ("a\nb", None), (5, None), (" ", None), ("x" * 300, "x" * 255)],
)
def test_a_full_name_is_one_line_or_none(name: object, full_name: str | None) -> None:
    assert identity(name=name).full_name == full_name


@pytest.mark.parametrize(
    "wrong",
    [
        {"aud": "them"},
        {"aud": None},
        {"aud": ["us", "them"]},
        {"azp": "them"},
        {"nonce": "other"},
        {"nonce": None},
        {"nonce": ""},
    ],
)
def test_a_token_for_another_client_or_login_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOidcLoginError):
        identity(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"email_verified": "true"}, {"email_verified": 1}, {"email": "x"}, {"email": None}]
)
def test_only_an_address_that_is_verified_counts(wrong: dict[str, Any]) -> None:
    with pytest.raises(EmailNotVerifiedError):
        identity(**wrong)


def test_an_account_is_opened_and_ends_the_sign_ups_of_its_address() -> None:
    waiting = create_signup(
        signup_id="sgn-1",
        email="ada.lovelace@example.com",
        username="ada",
        full_name=None,
        token="t",
        password_hash="h",
        cause=CAUSE,
    ).result
    for is_taken, username in ((False, "Ada.Lovelace"), (True, "Ada.Lovelace-000000000001")):
        opened, ended = open_account(
            identity(),
            [waiting],
            Taken(email=False, username=is_taken),
            account_id="000000000001",
            password_hash="h",
            cause=CAUSE,
        )
        assert (opened.result.username, opened.result.is_verified) == (username, True)
        assert [(each.before, each.after) for each in ended] == [(waiting, None)]
