"""What is told of a run's network, and when it can be changed, on every runtime."""

from dataclasses import replace

import pytest

from sandyard.runtime.errors import NotRunningError, RunNotFoundError
from sandyard.runtime.ports import Runtime
from tests.support.runtime.programs import LIMITS, STATIC, new_run_id
from tests.support.runtime.runtimes import RuntimeHost


async def test_a_report_is_there_while_it_runs_and_after_its_end(
    host: RuntimeHost, runtime: Runtime
) -> None:
    running = await runtime.start(new_run_id(), replace(STATIC, network="packages"), LIMITS)
    report = await host.connect().egress_report(running.run_id)
    assert report.network in ("packages", "internet")
    assert (report.connections, report.refused, list(report.refusals)) == (0, 0, [])
    await runtime.set_network(running.run_id, "internet")
    assert (await runtime.egress_report(running.run_id)).network == "internet"
    await runtime.stop(running.run_id)
    assert (await runtime.egress_report(running.run_id)).network == "internet"
    with pytest.raises(NotRunningError):
        await runtime.set_network(running.run_id, "none")


async def test_nothing_is_told_of_a_run_that_nobody_knows(runtime: Runtime) -> None:
    for call in (runtime.set_network(new_run_id(), "none"), runtime.egress_report(new_run_id())):
        with pytest.raises(RunNotFoundError):
            await call
