"""Runs a game day: a calm phase, the fault until its alerts fire, recovery, and the audit."""

import asyncio
from dataclasses import dataclass, field

from sandyard.tools.gameday.audit import give_all_back, verified
from sandyard.tools.gameday.errors import GameDayError
from sandyard.tools.gameday.faults import ADDED, SWITCHES
from sandyard.tools.gameday.load import Tracks
from sandyard.tools.gameday.model import Fault, Load, Scenario
from sandyard.tools.gameday.prometheus import firing_alerts
from sandyard.tools.gameday.promises import Supply, violations
from sandyard.tools.gameday.report import CALM, Outcome, alerts_since_fault
from sandyard.tools.gameday.stage import TRACK_TOKEN, Place, Stage, stage_for

LONGER_FOR_ALERTS_SEC = 60
"""How much longer a fault lasts, at most, while its alerts have not fired."""


@dataclass(slots=True)
class _Watch:
    """The observations of each second."""

    stage: Stage
    tracks: Tracks
    phase: str = CALM
    phases: dict[int, str] = field(default_factory=dict)
    firing: dict[int, frozenset[str]] = field(default_factory=dict)

    async def run(self, ending: asyncio.Event) -> None:
        while not ending.is_set():
            second = int(self.tracks.elapsed)
            self.phases[second] = self.phase
            if (watching := self.stage.prometheus) is not None:
                self.firing[second] = await firing_alerts(self.stage.client, watching.url)
            await asyncio.sleep(max(0.0, second + 1 - self.tracks.elapsed))

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
        urls = [each.url for each in stage.servers]
        tracks = Tracks(stage.client, urls, TRACK_TOKEN, marks=scenario.marks)
        watch, supplies = _Watch(stage, tracks), [Supply(0.0, pool)]
        await _under_load(scenario, load, watch, supplies)
        left = await give_all_back(stage, tracks)
        found = [*violations(tracks.calls, supplies), *left, *await verified(stage)]
        return Outcome(
            scenario,
            place.engine,
            tuple(tracks.calls),
            watch.phases,
            watch.firing,
            tuple(found),
            alerts_watched=stage.prometheus is not None,
        )


async def _under_load(
    scenario: Scenario, load: Load, watch: _Watch, supplies: list[Supply]
) -> None:
    ending = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(watch.tracks.run(load.tracks_per_second, ending))
        group.create_task(watch.run(ending))
        try:
            await _phases(scenario, load, watch, supplies)
        finally:
            ending.set()


async def _phases(scenario: Scenario, load: Load, watch: _Watch, supplies: list[Supply]) -> None:
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
    if scenario.fault is Fault.POOL_EXHAUSTION:
        supplies.append(Supply(watch.tracks.elapsed, supplies[0].total + ADDED))
    await asyncio.sleep(quarter)
