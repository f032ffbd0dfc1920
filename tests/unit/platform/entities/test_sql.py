"""Filters become conditions: only those that are set, each on its own column."""

import pytest

from sandyard.platform.accounts.sql import ACCOUNTS
from sandyard.platform.api_keys.model import KeyFilter
from sandyard.platform.api_keys.sql import API_KEYS
from sandyard.platform.entities.sql import SqlListing
from sandyard.platform.notifications.model import NotificationFilter, NotificationType
from sandyard.platform.notifications.sql import NOTIFICATIONS

KEYS = SqlListing(API_KEYS, searched=(API_KEYS.table.c.name, API_KEYS.table.c.description))


def test_an_empty_filter_has_no_condition() -> None:
    assert KEYS.matching(KeyFilter()) == []


@pytest.mark.parametrize(
    ("only", "conditions"),
    [
        (KeyFilter(is_active=False), ["api_keys.is_active IS false"]),
        (KeyFilter(search="a_b"), ["api_keys.name", "api_keys.description"]),
        (KeyFilter(search="a", is_active=True), ["api_keys.name", "api_keys.is_active IS true"]),
    ],
    ids=["a flag", "searched columns", "both"],
)
def test_each_field_that_is_set_is_a_condition(only: KeyFilter, conditions: list[str]) -> None:
    text = " AND ".join(str(each) for each in KEYS.matching(only))
    assert all(each in text for each in conditions), text


def test_a_field_without_a_column_has_its_own_condition() -> None:
    column = NOTIFICATIONS.table.c.is_read
    listing = SqlListing(NOTIFICATIONS, special={"unread": lambda unread: column.is_(not unread)})
    only = NotificationFilter(unread=True, type=NotificationType.ERROR)
    first, second = (str(each) for each in listing.matching(only))
    assert "is_read IS false" in first
    assert "notifications.type = " in second


def test_a_field_that_is_no_column_and_not_special_is_an_error() -> None:
    with pytest.raises(KeyError):
        SqlListing(ACCOUNTS).matching(NotificationFilter(unread=True))
