"""Threads that end with their caller."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from sandyard.kit.concurrency.tasks import in_stoppable_thread


async def test_a_thread_ends_with_its_caller_who_waits_for_it() -> None:
    began, ended = threading.Event(), threading.Event()

    def work(go_on: Callable[[], None]) -> None:
        began.set()
        try:
            while True:
                go_on()
        finally:
            ended.set()

    caller = asyncio.create_task(in_stoppable_thread(work))
    await asyncio.to_thread(began.wait)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()


async def test_results_and_errors_are_those_of_the_work() -> None:
    def answer(go_on: Callable[[], None]) -> str:
        go_on()
        return "done"

    def refuse(_: Callable[[], None]) -> None:
        raise ArithmeticError

    assert await in_stoppable_thread(answer) == "done"
    with pytest.raises(ArithmeticError):
        await in_stoppable_thread(refuse)
