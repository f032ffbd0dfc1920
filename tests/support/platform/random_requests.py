"""Random requests to a part with an HTTP API: concurrent calls, of which some are cancelled, and
replicas that are closed and opened again on the same data."""

import asyncio
import tempfile
from abc import abstractmethod
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.support.clocks import RunningClock
from tests.support.platform.in_process import MigratedEngines, PlatformApi

T = TypeVar("T")
Api = TypeVar("Api", bound=PlatformApi)
Work = Coroutine[Any, Any, None]

CANCELLATIONS = st.sampled_from([None, None, None, 1, 10, 50, 200, 1000])
"""After how many turns of the event loop a call is cancelled; None if it is not."""


@dataclass(frozen=True, slots=True)
class RandomCall:
    """A call of one client: the action, the index of its subject, the replica that is called, and
    after how many turns of the event loop the call is cancelled."""

    action: str
    number: int
    replica: int
    cancel_after: int | None


def random_calls(*actions: str) -> st.SearchStrategy[list[RandomCall]]:
    """Concurrent calls."""
    one = st.builds(
        RandomCall, st.sampled_from(actions), st.integers(0, 5), st.integers(0, 1), CANCELLATIONS
    )
    return st.lists(one, min_size=1, max_size=6)


class RandomRequests(RuleBasedStateMachine, Generic[Api]):
    engine = "sqlite"
    migrated: MigratedEngines

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.data_dir = Path(self.folder.name)
        self.clock = RunningClock()
        self.url = self.run(self.migrated.copy(self.engine, self.data_dir))
        self.run(self.begin())
        self.open()
        self.run(self.prepare())

    async def begin(self) -> None:
        """Before there is any replica."""

    async def prepare(self) -> None:
        """What there is at first."""

    async def end(self) -> None:
        """After the last replica."""

    @abstractmethod
    def replicas(self) -> AbstractAsyncContextManager[list[Api]]:
        """Two replicas on what there is."""

    @abstractmethod
    async def check(self) -> None:
        """Fail if events and states differ."""

    def open(self) -> None:
        self.context = self.replicas()
        self.apis = self.run(self.context.__aenter__())

    def close(self) -> None:
        self.run(self.context.__aexit__(None, None, None))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.check())
        self.close()
        self.run(self.end())
        self.loop.close()
        self.folder.cleanup()

    def api(self, call: RandomCall) -> Api:
        return self.apis[call.replica % len(self.apis)]

    def together(self, works: Sequence[tuple[Work, int | None]]) -> None:
        """Runs all concurrently; raises what fails in those that are not cancelled."""
        self.run(_together(works))

    @rule()
    def reopen(self) -> None:
        """The events lead to the states before and after."""
        self.run(self.check())
        self.close()
        self.open()
        self.run(self.check())

    @rule(seconds=st.sampled_from([1, 40, 3600, 86_400]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)


async def _together(works: Sequence[tuple[Work, int | None]]) -> None:
    tasks = [asyncio.ensure_future(_cancelled(work, turns)) for work, turns in works]
    await asyncio.gather(*tasks)


async def _cancelled(work: Work, turns: int | None) -> None:
    task = asyncio.ensure_future(work)
    if turns is None:
        await task
        return
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def run_random_requests(
    machine: type[RandomRequests[Any]],
    migrated: MigratedEngines,
    engine: str,
    *,
    examples: int,
    steps: int,
) -> None:
    machine.migrated, machine.engine = migrated, engine
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
