"""How long a board goes on."""

from random import Random

import pytest

from sandyard.telemetry.fleet.stalls import (
    NoProgressError,
    StallTimeout,
    Trouble,
    wait_before_retry,
)

# StallTimeout


def test_waits_double_up_to_a_bound_and_differ() -> None:
    rng = Random(1)
    waits = [[wait_before_retry(failures, rng) for _ in range(50)] for failures in range(12)]
    assert all(0.025 <= wait <= 0.05 for wait in waits[0])
    assert all(0.05 <= wait <= 0.1 for wait in waits[1])
    assert all(1 <= wait <= 2 for wait in waits[-1])
    assert all(len(set(each)) == 50 for each in waits)


async def test_patience_ends_when_nobody_gets_anywhere() -> None:
    stall_timeout = StallTimeout(0.1, rng=Random(1))
    stall_timeout.last_failure = "503"
    trouble = Trouble(stall_timeout)

    async def go_on() -> None:
        for _ in range(20):
            await trouble.wait()

    with pytest.raises(NoProgressError, match="503"):
        await go_on()


async def test_another_boards_progress_keeps_patience_up() -> None:
    stall_timeout = StallTimeout(0.1, rng=Random(1))
    stuck, lucky = Trouble(stall_timeout), Trouble(stall_timeout)
    for _ in range(3):
        await stuck.wait()
        lucky.over()
    await stuck.wait()
