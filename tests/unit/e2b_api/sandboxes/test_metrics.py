"""Metrics of sandboxes in E2B's format."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from sandyard.e2b_api.model import SandboxView
from sandyard.e2b_api.sandboxes.entrance import SandboxMetrics
from sandyard.kit.errors import UnavailableError
from sandyard.platform.measurements.model import MeasurementBucket
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.runtime.errors import NotRunningError
from sandyard.runtime.model import Sample
from tests.support.clocks import ManualClock
from tests.unit.platform.sandboxes.examples import NOW, SANDBOX

VIEW = SandboxView(replace(SANDBOX, started_at=NOW - timedelta(seconds=100)), "base", 1000)


class Store:
    """One bucket, at the begin of each span."""

    async def buckets(
        self, _sandbox_id: str, *, start: datetime, **_span: object
    ) -> Sequence[MeasurementBucket]:
        return [MeasurementBucket(start, 50.0, 25.0, 10.0, 1)]


def metrics(result: Sample | Exception) -> SandboxMetrics:
    async def sample(_sandbox: Sandbox) -> Sample:
        if isinstance(result, Exception):
            raise result
        return result

    return SandboxMetrics(cast("Any", Store()), sample, clock=ManualClock(NOW.timestamp()))


async def test_what_was_measured_in_a_span() -> None:
    start = NOW.timestamp() - 60
    [found] = await metrics(NotRunningError()).list(VIEW, start=start, end=NOW.timestamp())
    assert (found["timestampUnix"], found["cpuCount"], found["cpuUsedPct"]) == (int(start), 1, 50)
    assert (found["memUsed"], found["memTotal"]) == (1 << 28, 1 << 30)
    assert (found["diskUsed"], found["diskTotal"]) == (100 << 20, 1000 << 20)


async def test_without_a_span_its_life_but_at_most_a_week() -> None:
    old = replace(VIEW, sandbox=replace(VIEW.sandbox, created_at=NOW - timedelta(days=30)))
    [found] = await metrics(NotRunningError()).list(old, start=None, end=None)
    assert found["timestampUnix"] == int((NOW - timedelta(days=7)).timestamp()) + 1
    at = NOW.timestamp()
    assert await metrics(NotRunningError()).list(VIEW, start=at, end=at) == []


async def test_a_sandbox_that_does_not_run_has_no_current_metrics() -> None:
    assert await metrics(NotRunningError()).latest(VIEW) is None
    with pytest.raises(UnavailableError):
        await metrics(UnavailableError()).latest(VIEW)
