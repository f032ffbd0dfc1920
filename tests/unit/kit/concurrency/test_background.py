"""Work in the background is waited for at the end, and its failures are told."""

import asyncio

import pytest

from sandyard.kit.concurrency.tasks import Background


async def test_what_is_under_way_is_waited_for() -> None:
    background, done = Background(), []

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.append(1)

    for _ in range(3):
        background.start(work(), action="work")
    await background.finish()
    assert done == [1, 1, 1]
    await background.finish()


async def test_what_takes_too_long_is_broken_off() -> None:
    background = Background()
    background.start(asyncio.sleep(60), action="work")
    await background.finish(within_sec=0.01)


async def test_a_failure_is_logged_and_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    background = Background()

    async def fail() -> None:
        raise ValueError("as expected")

    background.start(fail(), action="work")
    await background.finish()
    assert "as expected" in caplog.text
