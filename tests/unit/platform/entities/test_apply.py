"""A use case decides anew while somebody else is faster, but not for ever."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import ATTEMPTS, Cause, Transition
from sandyard.platform.entities.apply import BusyError, change
from sandyard.platform.notifications.model import (
    Notice,
    Notification,
    create_notification,
    mark_read,
)

CAUSE = Cause("system", 1_800_000_000_000)


class Conflicting:
    """A store of one notification, in which others are faster some times."""

    def __init__(self, conflicts: int) -> None:
        notice = Notice("Title", "Text")
        made = create_notification(
            notice, notification_id="not-1", account_id="1" * 12, cause=CAUSE
        )
        self.kept: Notification = made.result
        self.finds = 0
        self._conflicts = conflicts

    async def find(self) -> Notification:
        self.finds += 1
        return self.kept

    async def apply(
        self, *transitions: Transition[Any], extra_events: Sequence[Event] = ()
    ) -> bool:
        assert not extra_events
        if self._conflicts:
            self._conflicts -= 1
            return False
        [transition] = transitions
        assert transition.before == self.kept
        self.kept = transition.result
        return True


@pytest.mark.parametrize("conflicts", [0, 1, ATTEMPTS - 1])
async def test_a_change_is_decided_from_what_is_there_then(conflicts: int) -> None:
    store = Conflicting(conflicts)
    read = await change(
        store, store.find, lambda found: mark_read(found, CAUSE), lock=asyncio.Lock()
    )
    assert read == store.kept
    assert read.is_read
    assert store.finds == conflicts + 1


async def test_no_change_is_the_entity_as_it_is() -> None:
    store = Conflicting(ATTEMPTS)
    assert await change(store, store.find, lambda _: None, lock=asyncio.Lock()) is store.kept
    assert store.finds == 1


async def test_a_change_that_never_comes_through_is_given_up() -> None:
    store = Conflicting(ATTEMPTS)
    with pytest.raises(BusyError):
        await change(store, store.find, lambda found: mark_read(found, CAUSE), lock=asyncio.Lock())
    assert not store.kept.is_read
