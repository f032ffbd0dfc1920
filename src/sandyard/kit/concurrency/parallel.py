"""Concurrent calls with a limit."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def for_each(
    items: Iterable[T], call: Callable[[T], Awaitable[R]], *, slots: asyncio.Semaphore
) -> list[R]:
    """The results in order; the first error cancels the other calls and is raised."""

    async def one(item: T) -> R:
        async with slots:
            return await call(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except ExceptionGroup as trouble:
        raise trouble.exceptions[0] from trouble
    return [task.result() for task in tasks]
