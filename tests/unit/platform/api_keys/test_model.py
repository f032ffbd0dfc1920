"""Every decision about API keys, at its edges."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from sandyard.kit.changes.transitions import Cause
from sandyard.platform.access.credentials import hash_api_key
from sandyard.platform.access.principal import Principal, Role, Scope
from sandyard.platform.api_keys.errors import ExpiryPassedError, KeyMakesNoKeysError
from sandyard.platform.api_keys.model import (
    AccountKey,
    NewKey,
    activate_key,
    create_key,
    deactivate_key,
    new_key_notice,
    revoke_key,
    update_key,
)

CAUSE = Cause("account:111111111111", 1_800_000_000_000)
LATER = replace(CAUSE, at_ms=CAUSE.at_ms + 1000)
OWNER = Principal("1" * 12, Role.USER)
API_KEY = "sbk-" + "k" * 40


def key(**changes: Any) -> AccountKey:
    made = create_key(NewKey("ci", None), key_id="key-1", api_key=API_KEY, by=OWNER, cause=CAUSE)
    return replace(made.result, **changes)


def test_of_a_new_key_its_beginning_and_its_hash_are_kept() -> None:
    made = create_key(NewKey("ci", "d"), key_id="key-1", api_key=API_KEY, by=OWNER, cause=CAUSE)
    assert (made.result.api_key, made.result.key_hash) == (API_KEY[:8], hash_api_key(API_KEY))
    assert (made.result.is_active, made.result.last_used_at) == (True, None)
    [event] = made.events
    assert (event.kind, event.account_id) == ("key.created", "1" * 12)
    assert API_KEY not in str(event)
    assert hash_api_key(API_KEY) not in str(event)
    assert "last_used_at" not in event.data
    assert API_KEY not in new_key_notice(made.result).message


def test_a_key_makes_no_keys() -> None:
    with pytest.raises(KeyMakesNoKeysError):
        create_key(
            NewKey("more", None),
            key_id="key-2",
            api_key=API_KEY,
            by=replace(OWNER, key_id="key-1"),
            cause=CAUSE,
        )


def test_a_key_may_not_be_over_before_it_is_made() -> None:
    def made(expires_at: datetime) -> AccountKey:
        new = NewKey("ci", None, Scope.RUN, expires_at)
        return create_key(new, key_id="key-1", api_key=API_KEY, by=OWNER, cause=CAUSE).result

    for over in (CAUSE.at, CAUSE.at - timedelta(days=1)):
        with pytest.raises(ExpiryPassedError):
            made(over)
    assert made(LATER.at).expires_at == LATER.at
    assert made(LATER.at).scope is Scope.RUN


def test_each_scope_includes_the_ones_before_it() -> None:
    included = {scope: [each for each in Scope if scope.includes(each)] for scope in Scope}
    assert included == {
        Scope.READ: [Scope.READ],
        Scope.RUN: [Scope.READ, Scope.RUN],
        Scope.ADMIN: [Scope.READ, Scope.RUN, Scope.ADMIN],
    }


def test_an_update_holds_what_is_different() -> None:
    assert update_key(key(), {"name": "ci", "description": None}, LATER) is None
    renamed = update_key(key(), {"name": "cd"}, LATER)
    assert renamed is not None
    assert renamed.result.updated_at == LATER.at
    assert renamed.events[0].kind == "key.updated"
    assert set(renamed.events[0].data) == {"name", "updated_at"}


def test_a_key_is_deactivated_and_activated_once() -> None:
    assert activate_key(key(), LATER) is None
    off = deactivate_key(key(), LATER)
    assert off is not None
    assert (off.result.is_active, off.events[0].kind) == (False, "key.deactivated")
    assert deactivate_key(off.result, LATER) is None
    on = activate_key(off.result, LATER)
    assert on is not None
    assert (on.result.is_active, on.events[0].kind) == (True, "key.activated")


def test_a_revoked_key_is_inactive_and_deleted() -> None:
    for found in (key(), key(is_active=False)):
        revoked = revoke_key(found, LATER)
        assert (revoked.result.is_active, revoked.result.deleted_at) == (False, LATER.at)
        assert revoked.events[0].kind == "key.revoked"
