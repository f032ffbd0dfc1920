"""Logins are ours alone, end in time, and survive a change of the signing key."""

from datetime import timedelta

import jwt
import pytest

from sandyard.kit.clock import utc_time
from sandyard.platform.access.login_tokens import LoginClaim, Logins

NOW = utc_time(1_800_000_000)
OLD, NEW = "o" * 40, "n" * 40
HOUR = timedelta(hours=1)


def issue(secret: str = OLD) -> str:
    login = Logins([secret], lifetime=HOUR).issue(account_id="1", token_version=3, now=NOW)
    assert login.expires_at == NOW + HOUR
    return login.access_token


def test_a_login_says_whose_it_is_until_it_ends() -> None:
    logins = Logins([OLD], lifetime=HOUR)
    token = issue()
    assert logins.read(token, now=NOW) == LoginClaim("1", 3, NOW + HOUR)
    assert logins.read(token, now=NOW + HOUR - timedelta(seconds=1)) is not None
    assert logins.read(token, now=NOW + HOUR) is None


def test_what_a_token_opens_does_not_outlive_what_it_was_made_with() -> None:
    logins = Logins([OLD], lifetime=HOUR)
    of_login = logins.issue(account_id="1", token_version=3, now=NOW, until=NOW + 9 * HOUR)
    claim = LoginClaim("1", 3, NOW + 9 * HOUR)
    assert logins.read(of_login.access_token, now=NOW) == claim
    assert logins.read(of_login.access_token, now=NOW + HOUR) is None
    of_key = logins.issue(account_id="1", token_version=3, now=NOW, key_id="k")
    assert logins.read(of_key.access_token, now=NOW) == LoginClaim("1", 3, NOW + HOUR, "k")


def test_a_new_key_signs_and_the_old_one_is_still_taken() -> None:
    both = Logins([NEW, OLD], lifetime=HOUR)
    assert both.read(issue(OLD), now=NOW) is not None
    fresh = both.issue(account_id="1", token_version=3, now=NOW).access_token
    assert Logins([NEW], lifetime=HOUR).read(fresh, now=NOW) is not None
    assert Logins([OLD], lifetime=HOUR).read(fresh, now=NOW) is None


@pytest.mark.parametrize(
    ("change", "algorithm"),
    [
        ({"iss": "another"}, "HS256"),
        ({"exp": "soon"}, "HS256"),
        ({"exp": 10**12}, "HS256"),
        ({"exp": 10**30}, "HS256"),
        ({"exp": -(10**30)}, "HS256"),
        ({"sub": 1}, "HS256"),
        ({}, "HS384"),
        ({}, "none"),
    ],
)
def test_other_tokens_are_refused(change: dict[str, object], algorithm: str) -> None:
    claims = {"iss": "sandyard", "sub": "1", "ver": 3, "exp": int(NOW.timestamp()) + 60}
    key = "" if algorithm == "none" else OLD + OLD
    token = jwt.encode(claims | change, key, algorithm=algorithm)
    assert Logins([OLD + OLD], lifetime=HOUR).read(token, now=NOW) is None


@pytest.mark.parametrize("missing", ["sub", "ver", "exp"])
def test_a_token_without_a_claim_is_refused(missing: str) -> None:
    claims = {"iss": "sandyard", "sub": "1", "ver": 3, "exp": int(NOW.timestamp()) + 60}
    del claims[missing]
    token = jwt.encode(claims, OLD, algorithm="HS256")
    assert Logins([OLD], lifetime=HOUR).read(token, now=NOW) is None
