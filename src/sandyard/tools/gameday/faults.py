"""How each fault is injected and removed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from sandyard.tools.gameday.errors import GameDayError
from sandyard.tools.gameday.model import Fault
from sandyard.tools.gameday.stage import Stage

_THROTTLED_SHARE = 0.9
_LONGER_THAN_ANY_TIMEOUT_SEC = 60.0
_AHEAD_SEC = 60.0
"""Longer than a job's lease, so that jobs are taken from a healthy holder."""
ADDED = 500

Step = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Injection:
    begin: Step
    end: Step


async def _nothing(_stage: Stage) -> None:
    """The load itself is the fault."""


async def _add_sandboxes(stage: Stage) -> None:
    answer = await stage.client.post(f"{stage.provider.url}/_sim/sandboxes", json={"count": ADDED})
    answer.raise_for_status()
    (await stage.admin("POST", "sync")).raise_for_status()


async def _cut(stage: Stage) -> None:
    if stage.engine.connection is None:
        raise GameDayError("engine-away needs an engine that servers connect to.")
    stage.engine.connection.cut()


async def _mend(stage: Stage) -> None:
    if stage.engine.connection is not None:
        stage.engine.connection.mend()


async def _throttle(stage: Stage) -> None:
    if stage.engine.throttle is None:
        raise GameDayError("throttling needs DynamoDB.")
    stage.engine.throttle.share = _THROTTLED_SHARE


async def _serve_all(stage: Stage) -> None:
    if stage.engine.throttle is not None:
        stage.engine.throttle.share = 0.0


async def _fill(stage: Stage) -> None:
    if stage.disk is not None:
        await asyncio.to_thread(stage.disk.fill)


async def _free(stage: Stage) -> None:
    if stage.disk is not None:
        stage.disk.free()


async def _skew(stage: Stage) -> None:
    if stage.clock is None:
        raise GameDayError("clock-skew needs an engine that two servers share.")
    stage.clock.set(_AHEAD_SEC)


async def _set_right(stage: Stage) -> None:
    if stage.clock is not None:
        stage.clock.set(0.0)


INJECTIONS: Mapping[Fault, Injection] = {
    Fault.PROVIDER_OUTAGE: Injection(
        lambda stage: stage.change_provider(outage="error"),
        lambda stage: stage.change_provider(outage="none"),
    ),
    Fault.POOL_EXHAUSTION: Injection(_nothing, _add_sandboxes),
    Fault.DELETIONS_TIME_OUT: Injection(
        lambda stage: stage.change_provider(delete_latency=_LONGER_THAN_ANY_TIMEOUT_SEC),
        lambda stage: stage.change_provider(delete_latency=0.0),
    ),
    Fault.SERVER_KILLED: Injection(
        lambda stage: stage.servers[-1].kill(), lambda stage: stage.servers[-1].start()
    ),
    Fault.ENGINE_AWAY: Injection(_cut, _mend),
    Fault.THROTTLED: Injection(_throttle, _serve_all),
    Fault.DISK_FULL: Injection(_fill, _free),
    Fault.CLOCK_SKEW: Injection(_skew, _set_right),
}
