"""Every decision about accounts, at its edges."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from sandyard.kit.changes.events import Effect
from sandyard.kit.changes.transitions import Cause, state_of
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.accounts.errors import (
    InvalidResetTokenError,
    LastAdminError,
    OwnAccountError,
)
from sandyard.platform.accounts.model import (
    RESET_INTERVAL,
    RESET_LIFETIME,
    Account,
    OtherAdmins,
    activate,
    change_password,
    change_role,
    create_account,
    deactivate,
    end_logins,
    hash_token,
    login_failed,
    login_succeeded,
    rehash_password,
    request_reset,
    reset_password,
    update_profile,
)

CAUSE = Cause("account:222222222222", 1_800_000_000_123)
LATER = replace(CAUSE, at_ms=CAUSE.at_ms + 5)
ID = "1" * 12
ALONE, OTHERS = OtherAdmins(ID, exist=False), OtherAdmins(ID, exist=True)


def account(**changes: Any) -> Account:
    made = create_account(
        account_id=ID,
        email="Ann@Example.com",
        username="Ann",
        full_name=None,
        password_hash="hash",
        cause=CAUSE,
    )
    return replace(made.result, **changes)


def test_a_new_account_is_active_verified_and_has_a_normal_address() -> None:
    made = create_account(
        account_id=ID,
        email="Ann@Example.com",
        username="Ann",
        full_name="Ann",
        password_hash="hash",
        cause=CAUSE,
        role=Role.ADMIN,
    )
    found = made.result
    assert (found.email, found.role, found.is_active, found.is_verified) == (
        *("ann@example.com", Role.ADMIN, True, True),
    )
    assert (found.sequence, found.token_version, found.created_at) == (1, 0, CAUSE.at)
    [event] = made.events
    assert (event.kind, event.effect, event.subject, event.account_id) == (
        *("account.created", Effect.FULL, ID, ID),
    )
    assert event.data == state_of(found)
    assert not {"password_hash", "reset_token", "last_login"} & event.data.keys()


def test_a_profile_changes_only_what_is_given_and_money_has_one_form() -> None:
    changed = update_profile(account(), {"spend_threshold": Decimal("12.5")}, LATER)
    assert changed is not None
    assert changed.events[0].kind == "account.updated"
    assert changed.events[0].data == {
        "spend_threshold": "12.500000",
        "updated_at": "2027-01-15T08:00:00.128000Z",
    }
    same = update_profile(changed.result, {"spend_threshold": Decimal("12.50")}, LATER)
    assert same is None
    assert update_profile(account(), {}, LATER) is None
    cleared = update_profile(changed.result, {"spend_threshold": None}, LATER)
    assert cleared is not None
    assert cleared.result.spend_threshold is None


def test_activation_leaves_logins_ended() -> None:
    assert activate(account(), LATER) is None
    again = activate(account(is_active=False, token_version=3), LATER)
    assert again is not None
    assert (again.result.is_active, again.result.token_version) == (True, 3)
    assert again.events[0].kind == "account.activated"


def test_deactivation_ends_logins_and_is_not_for_oneself() -> None:
    with pytest.raises(OwnAccountError):
        deactivate(account(), OTHERS, by=ID, cause=LATER)
    assert deactivate(account(is_active=False), ALONE, by="2" * 12, cause=LATER) is None
    off = deactivate(account(), ALONE, by="2" * 12, cause=LATER)
    assert off is not None
    assert (off.result.is_active, off.result.token_version, off.preconditions) == (False, 1, ())
    assert off.events[0].kind == "account.deactivated"


def test_the_last_active_admin_stays_and_the_fact_is_given() -> None:
    admin = account(role=Role.ADMIN)
    with pytest.raises(LastAdminError):
        deactivate(admin, ALONE, by="2" * 12, cause=LATER)
    with pytest.raises(LastAdminError):
        change_role(admin, Role.USER, ALONE, LATER)
    for decided in (
        deactivate(admin, OTHERS, by="2" * 12, cause=LATER),
        change_role(admin, Role.USER, OTHERS, LATER),
    ):
        assert decided is not None
        assert decided.preconditions == (OTHERS,)
    inactive = change_role(replace(admin, is_active=False), Role.USER, ALONE, LATER)
    assert inactive is not None
    assert inactive.preconditions == ()


def test_a_role_ends_logins_unless_it_is_there_already() -> None:
    assert change_role(account(), Role.USER, ALONE, LATER) is None
    promoted = change_role(account(), Role.ADMIN, ALONE, LATER)
    assert promoted is not None
    assert (promoted.result.role, promoted.result.token_version) == (Role.ADMIN, 1)
    assert promoted.events[0].kind == "account.role_changed"
    assert promoted.preconditions == ()


def test_ended_logins_raise_the_version() -> None:
    ended = end_logins(account(token_version=6), LATER)
    assert ended is not None
    assert ended.result.token_version == 7
    assert ended.events[0].kind == "logins.ended"


def test_a_password_ends_logins_and_any_reset_and_no_event_holds_it() -> None:
    asked = request_reset(account(), "token", CAUSE)
    assert asked is not None
    changed = change_password(asked.result, "other hash", LATER)
    assert changed.result.password_hash == "other hash"
    assert changed.result.token_version == 1
    assert changed.result.reset_token is None
    assert changed.result.reset_token_expiry is None
    assert changed.events[0].kind == "password.changed"
    assert changed.events[0].data == {
        "token_version": 1,
        "reset_token_expiry": None,
        "updated_at": "2027-01-15T08:00:00.128000Z",
    }


def test_a_reset_is_asked_for_by_active_accounts_alone() -> None:
    assert request_reset(account(is_active=False), "token", CAUSE) is None
    asked = request_reset(account(), "token", CAUSE)
    assert asked is not None
    assert asked.result.reset_token == hash_token("token")
    assert asked.result.reset_token_expiry == CAUSE.at + RESET_LIFETIME
    assert asked.events[0].kind == "password.reset_requested"
    assert set(asked.events[0].data) == {"reset_token_expiry", "last_password_reset_request"}


def test_a_reset_is_mailed_once_a_minute() -> None:
    asked = request_reset(account(), "token", CAUSE)
    assert asked is not None
    end = CAUSE.at_ms + int(RESET_INTERVAL / timedelta(milliseconds=1))
    assert request_reset(asked.result, "other", replace(CAUSE, at_ms=end - 1)) is None
    again = request_reset(asked.result, "other", replace(CAUSE, at_ms=end))
    assert again is not None
    assert again.result.reset_token == hash_token("other")


def test_a_token_that_came_back_verifies_the_address() -> None:
    asked = request_reset(account(is_verified=False), "token", CAUSE)
    assert asked is not None
    assert not asked.result.is_verified
    done = reset_password(asked.result, "token", "new", CAUSE)
    assert done.result.is_verified
    assert done.events[0].data["is_verified"] is True
    assert not change_password(asked.result, "new", CAUSE).result.is_verified


def test_a_reset_token_is_good_until_its_last_moment_and_once() -> None:
    asked = request_reset(account(), "token", CAUSE)
    assert asked is not None
    end = CAUSE.at_ms + int(RESET_LIFETIME / timedelta(milliseconds=1))
    done = reset_password(asked.result, "token", "new", replace(CAUSE, at_ms=end - 1))
    assert done.events[0].kind == "password.reset"
    assert (done.result.password_hash, done.result.token_version) == ("new", 1)
    for found, token, at_ms in (
        (asked.result, "token", end),
        (asked.result, "other", end - 1),
        (replace(asked.result, is_active=False), "token", end - 1),
        (done.result, "token", end - 1),
    ):
        with pytest.raises(InvalidResetTokenError):
            reset_password(found, token, "newer", replace(CAUSE, at_ms=at_ms))


def test_a_better_hash_changes_nothing_else() -> None:
    rehashed = rehash_password(account(), "better", LATER)
    assert rehashed.result == replace(account(), password_hash="better", sequence=2)
    assert (rehashed.events[0].kind, rehashed.events[0].data) == ("password.rehashed", {})


def test_logins_are_remarks_of_the_account() -> None:
    ok = login_succeeded(account(), CAUSE, address="10.0.0.1")
    failed = login_failed(account(), CAUSE.because("wrong password"), address="10.0.0.1")
    assert (ok.kind, failed.kind) == ("login.succeeded", "login.failed")
    for event in (ok, failed):
        assert (event.effect, event.sequence, event.account_id) == (Effect.NONE, None, ID)
        assert event.data == {"address": "10.0.0.1"}
    assert failed.reason == "wrong password"


def test_who_acts_is_the_account_or_its_key() -> None:
    assert Principal(ID, Role.USER).actor == f"account:{ID}"
    assert Principal(ID, Role.USER, "key-1").actor == "key:key-1"
