"""How each fault is turned on and off."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from sandyard.tools.gameday.errors import GameDayError
from sandyard.tools.gameday.model import Fault
from sandyard.tools.gameday.stage import Stage

_THROTTLED_SHARE = 0.9
_LONGER_THAN_ANY_TIMEOUT_SEC = 60.0
_AHEAD_SEC = 60.0
"""Longer than a job's lease, so that jobs are taken from a healthy holder."""
ADDED = 500


class Switch(Protocol):
    """Turns a fault on or off."""

    async def __call__(self, stage: Stage, *, is_on: bool) -> None: ...


async def _outage(stage: Stage, *, is_on: bool) -> None:
    await stage.change_provider(outage="error" if is_on else "none")


async def _exhaustion(stage: Stage, *, is_on: bool) -> None:
    """The load itself is the fault."""
    if is_on:
        return
    answer = await stage.client.post(f"{stage.provider.url}/_sim/sandboxes", json={"count": ADDED})
    answer.raise_for_status()
    (await stage.admin("POST", "sync")).raise_for_status()


async def _deletions_time_out(stage: Stage, *, is_on: bool) -> None:
    await stage.change_provider(delete_latency=_LONGER_THAN_ANY_TIMEOUT_SEC if is_on else 0.0)


async def _server_killed(stage: Stage, *, is_on: bool) -> None:
    server = stage.servers[-1]
    await (server.kill() if is_on else server.start())


async def _engine_away(stage: Stage, *, is_on: bool) -> None:
    connection = stage.engine.connection
    if connection is None:
        raise GameDayError("engine-away needs an engine that servers connect to.")
    connection.cut() if is_on else connection.mend()


async def _throttled(stage: Stage, *, is_on: bool) -> None:
    if stage.engine.throttle is None:
        raise GameDayError("throttling needs DynamoDB.")
    stage.engine.throttle.share = _THROTTLED_SHARE if is_on else 0.0


async def _disk_full(stage: Stage, *, is_on: bool) -> None:
    if stage.disk is not None:
        await asyncio.to_thread(stage.disk.fill if is_on else stage.disk.free)


async def _clock_skew(stage: Stage, *, is_on: bool) -> None:
    if stage.clock is None:
        raise GameDayError("clock-skew needs an engine that two servers share.")
    stage.clock.set(_AHEAD_SEC if is_on else 0.0)


SWITCHES: Mapping[Fault, Switch] = {
    Fault.PROVIDER_OUTAGE: _outage,
    Fault.POOL_EXHAUSTION: _exhaustion,
    Fault.DELETIONS_TIME_OUT: _deletions_time_out,
    Fault.SERVER_KILLED: _server_killed,
    Fault.ENGINE_AWAY: _engine_away,
    Fault.THROTTLED: _throttled,
    Fault.DISK_FULL: _disk_full,
    Fault.CLOCK_SKEW: _clock_skew,
}
