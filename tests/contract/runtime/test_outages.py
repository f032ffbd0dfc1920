"""What can't be reached is unavailable: never ended, never unknown."""

import time
from collections.abc import Awaitable

import pytest

from sandyard.kit.errors import UnavailableError
from sandyard.runtime.model import FileChanges, RunId
from sandyard.runtime.ports import Runtime
from tests.support.runtime.programs import LIMITS, STATIC, new_run_id
from tests.support.runtime.runtimes import RuntimeHost


def calls_on(runtime: Runtime, run_id: RunId) -> list[Awaitable[object]]:
    return [
        runtime.check(),
        runtime.refresh(run_id),
        runtime.list_runs("sandbox"),
        runtime.start(run_id, STATIC, LIMITS),
        runtime.start(new_run_id(), STATIC, LIMITS),
        runtime.stop(run_id),
        runtime.forget(run_id),
        runtime.extend(run_id, deadline_at=time.time() + 600),
        runtime.sample(run_id),
        runtime.tail_logs(run_id, lines=1),
        anext(runtime.follow_logs(run_id)),
        runtime.write_files(run_id, FileChanges(written={"index.html": b"changed"})),
        runtime.delete_snapshot("unknown"),
    ]


async def test_an_outage_is_told_as_one_and_changes_nothing(
    host: RuntimeHost, runtime: Runtime
) -> None:
    running = await runtime.start(new_run_id(), STATIC, LIMITS)
    with host.outage() as unreachable:
        for call in calls_on(unreachable, running.run_id):
            with pytest.raises(UnavailableError):
                await call
    assert await runtime.refresh(running.run_id) == running
    assert (await host.page(running)).content == b"<h1>hello</h1>"
    ended = await runtime.stop(running.run_id)
    assert ended.reason == "stopped"
