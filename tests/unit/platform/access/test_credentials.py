"""What makes a key valid."""

from dataclasses import replace
from datetime import UTC, datetime

from sandyard.platform.access.credentials import AccountCredential, KeyCredential
from sandyard.platform.access.principal import Role, Scope

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = KeyCredential(
    AccountCredential("acc-1", Role.USER, is_active=True, token_version=1),
    "key-1",
    is_active=True,
    last_used_at=None,
    scope=Scope.RUN,
    expires_at=None,
)


def test_a_key_holds_while_it_and_its_account_are_active() -> None:
    assert KEY.holds_at(NOW)
    assert not replace(KEY, is_active=False).holds_at(NOW)
    assert not replace(KEY, account=replace(KEY.account, is_active=False)).holds_at(NOW)


def test_a_key_is_over_at_its_very_end() -> None:
    assert not replace(KEY, expires_at=NOW).holds_at(NOW)
    assert replace(KEY, expires_at=NOW.replace(microsecond=1)).holds_at(NOW)
