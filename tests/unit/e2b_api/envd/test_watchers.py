"""Watches that are polled."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sandyard.e2b_api.envd.filesystem import WatcherNotFoundError, Watchers
from sandyard.kit.errors import UnavailableError


async def events(*names: str, error: Exception | None = None) -> AsyncIterator[Any]:
    yield {"start": {}}
    for name in names:
        yield {"filesystem": {"name": name}}
    if error is not None:
        raise error


async def test_events_are_returned_once() -> None:
    watchers = Watchers()
    watcher_id = await watchers.create("sbx-1", events("a", "b"))
    assert [each["name"] for each in await watchers.take("sbx-1", watcher_id)] == ["a", "b"]
    assert await watchers.take("sbx-1", watcher_id) == []


async def test_what_ended_a_watch_is_told_after_its_events() -> None:
    watchers = Watchers()
    watcher_id = await watchers.create("sbx-1", events("a", error=UnavailableError()))
    assert [each["name"] for each in await watchers.take("sbx-1", watcher_id)] == ["a"]
    with pytest.raises(UnavailableError):
        await watchers.take("sbx-1", watcher_id)


async def test_a_watch_that_can_t_begin() -> None:
    async def refused() -> AsyncIterator[Any]:
        raise UnavailableError
        yield

    with pytest.raises(UnavailableError):
        await Watchers().create("sbx-1", refused())


async def test_a_watch_is_its_sandbox_s_own() -> None:
    watchers = Watchers()
    watcher_id = await watchers.create("sbx-1", events())
    with pytest.raises(WatcherNotFoundError):
        await watchers.take("sbx-2", watcher_id)
    watchers.remove("sbx-1", watcher_id)
    with pytest.raises(WatcherNotFoundError):
        watchers.remove("sbx-1", watcher_id)


async def test_the_oldest_watches_of_a_sandbox_are_dropped() -> None:
    async def endless() -> AsyncIterator[Any]:
        yield {"start": {}}
        await asyncio.Event().wait()

    watchers = Watchers()
    ids = [await watchers.create("sbx-1", endless()) for _ in range(101)]
    with pytest.raises(WatcherNotFoundError):
        await watchers.take("sbx-1", ids[0])
    for watcher_id in ids[1:]:
        watchers.remove("sbx-1", watcher_id)
