"""Runs a game day: a calm phase, the fault until its alerts fire, recovery, and the audit."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sandyard.tools.gameday.load import Tracks
from sandyard.tools.gameday.model import Fault, GameDayError, Load, Part, Promise, Scenario
from sandyard.tools.gameday.previews import Projects
from sandyard.tools.gameday.processes import firing_alerts, run_once, sandyard_command
from sandyard.tools.gameday.promises import Supply, Violation
from sandyard.tools.gameday.readings import Devices
from sandyard.tools.gameday.report import CALM, Outcome, alerts_since_fault
from sandyard.tools.gameday.sandboxes import Users
from sandyard.tools.gameday.stage import Place, Stage, stage_for
from sandyard.tools.gameday.workload import Workload

_THROTTLED_SHARE = 0.9
_LONGER_THAN_ANY_TIMEOUT_SEC = 60.0
_AHEAD_SEC = 60.0
"""Longer than a job's lease, so that jobs are taken from a healthy holder."""
ADDED = 500
LONGER_FOR_ALERTS_SEC = 60
"""How much longer a fault lasts, at most, while its alerts have not fired."""


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
    if stage.engine.connection is None:
        raise GameDayError("engine-away needs an engine that servers connect to.")
    stage.engine.connection.set_cut(is_cut=is_on)


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


async def _preview_provider_away(stage: Stage, *, is_on: bool) -> None:
    if stage.provider.connection is None:
        raise GameDayError("previews-provider needs a provider of previews.")
    stage.provider.connection.set_cut(is_cut=is_on)


SWITCHES: Mapping[Fault, Switch] = {
    Fault.PROVIDER_OUTAGE: _outage,
    Fault.POOL_EXHAUSTION: _exhaustion,
    Fault.DELETIONS_TIME_OUT: _deletions_time_out,
    Fault.SERVER_KILLED: _server_killed,
    Fault.ENGINE_AWAY: _engine_away,
    Fault.THROTTLED: _throttled,
    Fault.DISK_FULL: _disk_full,
    Fault.CLOCK_SKEW: _clock_skew,
    Fault.PREVIEW_PROVIDER_AWAY: _preview_provider_away,
}


@dataclass(slots=True)
class _Watch:
    """The observations of each second."""

    stage: Stage
    load: Workload
    phase: str = CALM
    phases: dict[int, str] = field(default_factory=dict)
    firing: dict[int, frozenset[str]] = field(default_factory=dict)

    async def run(self, ending: asyncio.Event) -> None:
        while not ending.is_set():
            second = int(self.load.elapsed)
            self.phases[second] = self.phase
            if (watching := self.stage.prometheus) is not None:
                self.firing[second] = await firing_alerts(self.stage.client, watching.url)
            await asyncio.sleep(max(0.0, second + 1 - self.load.elapsed))

    def has_seen(self, alerts: tuple[str, ...]) -> bool:
        seen = alerts_since_fault(self.phases, self.firing)
        return self.stage.prometheus is None or seen.issuperset(alerts)


async def hold(scenario: Scenario, place: Place, load: Load) -> Outcome:
    """Raises GameDayError if it could not run; the effects of the fault are in the outcome."""
    if place.engine not in scenario.engines:
        where = ", ".join(scenario.engines)
        raise GameDayError(f"{scenario.name} does not apply to {place.engine}, but to {where}.")
    pool = load.pool_for(scenario, load.seconds + LONGER_FOR_ALERTS_SEC + 30)
    async with stage_for(scenario, place, pool) as stage:
        workload = _workload(scenario, stage, pool)
        watch = _Watch(stage, workload)
        try:
            await workload.prepare()
            await _under_load(scenario, load, watch)
            found = [*await workload.audit()]
        finally:
            await workload.close()
        found += await verified(stage)
        return Outcome(
            scenario,
            place.engine,
            tuple(workload.calls),
            watch.phases,
            watch.firing,
            tuple(found),
            alerts_watched=stage.prometheus is not None,
        )


def _workload(scenario: Scenario, stage: Stage, pool: int) -> Workload:
    urls = [each.url for each in stage.servers]
    match scenario.part:
        case Part.BROKER:
            return Tracks(stage, pool, marks=scenario.marks)
        case Part.PLATFORM:
            return Users(stage.client, urls, stage.data_dir)
        case Part.PREVIEWS:
            provider = f"{stage.provider.url}/e2b"
            api_key = stage.settings["E2B_API_KEY"]
            return Projects(stage.client, urls, stage.data_dir, provider, api_key)
        case Part.TELEMETRY:
            return Devices(stage.client, urls)


async def _under_load(scenario: Scenario, load: Load, watch: _Watch) -> None:
    ending = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(watch.load.run(load.tracks_per_second, ending))
        group.create_task(watch.run(ending))
        try:
            await _phases(scenario, load, watch)
        finally:
            ending.set()


async def _phases(scenario: Scenario, load: Load, watch: _Watch) -> None:
    switch, quarter = SWITCHES[scenario.fault], load.seconds / 4
    await asyncio.sleep(quarter)
    watch.phase = "fault"
    await switch(watch.stage, is_on=True)
    await asyncio.sleep(2 * quarter)
    for _ in range(LONGER_FOR_ALERTS_SEC):
        if watch.has_seen(scenario.alerts):
            break
        await asyncio.sleep(1)
    await switch(watch.stage, is_on=False)
    watch.phase = "recovery"
    if scenario.fault is Fault.POOL_EXHAUSTION and isinstance(watch.load, Tracks):
        supplies = watch.load.supplies
        supplies.append(Supply(watch.load.elapsed, supplies[0].total + ADDED))
    await asyncio.sleep(quarter)


async def verified(stage: Stage) -> list[Violation]:
    """`sandyard verify` over the data of the game day."""
    arguments = sandyard_command("verify", "--data-dir", str(stage.data_dir))
    code, printed = await run_once(arguments, stage.settings)
    return [Violation(Promise.CONSISTENT, printed)] if code else []
