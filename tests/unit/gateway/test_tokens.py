"""Access tokens: signed by any of the secrets, told apart by their use, over at their time."""

from datetime import timedelta
from typing import Any

import jwt
import pytest

from sandyard.gateway.model import Grant, PageScope, TargetHost
from sandyard.gateway.tokens import PREFIX, AccessTokens
from sandyard.kit.clock import utc_time

NOW = utc_time(1_800_000_000)
GRANT = Grant(
    "sbx-1m4p7s0v3y6b9e2hk",
    "100000000000",
    3,
    frozenset({PageScope.VIEW}),
    NOW + timedelta(hours=1),
)
TOKENS = AccessTokens(["a" * 40])


def test_a_token_says_what_it_was_issued_for_until_its_last_second() -> None:
    token = TOKENS.issue(GRANT)
    assert token.startswith(PREFIX)
    assert TOKENS.read(token, now=GRANT.expires_at - timedelta(seconds=1)) == GRANT
    assert TOKENS.read(token, now=GRANT.expires_at) is None


def test_a_token_that_was_changed_or_signed_by_others_is_refused() -> None:
    token = TOKENS.issue(GRANT)
    assert AccessTokens(["b" * 40]).read(token, now=NOW) is None
    assert TOKENS.read(token.removeprefix(PREFIX), now=NOW) is None
    head, body, signature = token.split(".")
    assert TOKENS.read(f"{head}.{body[:-2]}AA.{signature}", now=NOW) is None
    assert TOKENS.read(f"{PREFIX}{'x' * 50}", now=NOW) is None


@pytest.mark.parametrize(
    "changes", [{"exp": 10**12}, {"exp": 10**30}, {"exp": "soon"}, {"scp": ["x"]}, {"scp": 1}]
)
def test_a_signed_token_with_invalid_claims_is_refused(changes: dict[str, Any]) -> None:
    body = TOKENS.issue(GRANT).removeprefix(PREFIX)
    claims = jwt.decode(body, options={"verify_signature": False}) | changes
    signed = jwt.encode(claims, "a" * 40, algorithm="HS256")
    assert TOKENS.read(PREFIX + signed, now=NOW) is None


def test_secrets_are_rotated() -> None:
    token = TOKENS.issue(GRANT)
    both = AccessTokens(["b" * 40, "a" * 40])
    assert both.read(token, now=NOW) == GRANT
    assert TOKENS.read(both.issue(GRANT), now=NOW) is None


def test_a_cookie_is_for_one_port_and_not_valid_as_a_token() -> None:
    cookie = TOKENS.issue(GRANT, cookie_of=TargetHost(3000, GRANT.target_id))
    read = TOKENS.read(cookie, now=NOW, use="cookie")
    assert read is not None
    assert read.port == 3000
    assert TOKENS.read(cookie, now=NOW) is None
    assert TOKENS.read(TOKENS.issue(GRANT), now=NOW, use="cookie") is None
