"""Work in the background of a server goes on after an unexpected error."""

import pytest

from sandyard.entrypoints.server.lifecycle import keep_running


async def test_work_that_fails_is_logged_and_starts_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs: list[int] = []

    async def work() -> None:
        runs.append(len(runs))
        if len(runs) < 3:
            raise ValueError("unexpected")

    await keep_running(work, pause_sec=0)
    assert runs == [0, 1, 2]
    assert caplog.text.count("work in the background failed, and starts again") == 2
