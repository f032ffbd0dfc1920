"""Every decision about notifications, at its edges."""

from dataclasses import replace

from sandyard.kit.changes.transitions import Cause
from sandyard.platform.notifications.model import (
    Notice,
    NotificationType,
    create_notification,
    delete_notification,
    mark_read,
)

CAUSE = Cause("job:billing", 1_800_000_000_000)
LATER = replace(CAUSE, at_ms=CAUSE.at_ms + 1000)
NOTICE = Notice("Title", "Text", NotificationType.ERROR, "sandbox", "sbx-1")
MADE = create_notification(NOTICE, notification_id="not-1", account_id="1" * 12, cause=CAUSE)


def test_a_notification_is_its_notice_unread() -> None:
    found = MADE.result
    assert (found.title, found.message, found.type) == ("Title", "Text", NotificationType.ERROR)
    assert (found.related_entity_type, found.related_entity_id) == ("sandbox", "sbx-1")
    assert (found.is_read, found.deleted_at) == (False, None)
    assert MADE.events[0].kind == "notification.created"
    assert MADE.events[0].account_id == "1" * 12


def test_a_notification_is_read_once() -> None:
    read = mark_read(MADE.result, LATER)
    assert read is not None
    assert (read.events[0].kind, read.events[0].data) == ("notification.read", {"is_read": True})
    assert mark_read(read.result, LATER) is None


def test_a_deleted_notification_keeps_whether_it_was_read() -> None:
    deleted = delete_notification(MADE.result, LATER)
    assert (deleted.result.is_read, deleted.result.deleted_at) == (False, LATER.at)
    assert deleted.events[0].kind == "notification.deleted"
