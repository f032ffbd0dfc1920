"""Samples the pool once a minute, and returns the samples of the last day."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sandyard.broker.history.model import (
    KEPT_SEC,
    MINUTE_SEC,
    RATE_SEC,
    Outlook,
    PoolSample,
    in_steps,
    minute_of,
    outlook,
)
from sandyard.broker.history.ports import HistoryStore
from sandyard.broker.pool.ports import PoolStore
from sandyard.kit.clock import Clock

_LEASED = "lease.created"


@dataclass(slots=True)
class SampleReport:
    sampled: int = 0


@dataclass(frozen=True, slots=True)
class PoolHistory:
    samples: Sequence[PoolSample]
    outlook: Outlook


class History:
    def __init__(self, store: PoolStore, history: HistoryStore, *, clock: Clock) -> None:
        self._store = store
        self._history = history
        self._clock = clock

    async def sample(self) -> SampleReport:
        """Record a sample of this minute, unless there is one. The leases of the previous minute
        are counted again, because some may not have been visible when it was sampled."""
        minute = minute_of(self._clock.now())
        last = await self._history.samples(since=minute - MINUTE_SEC)
        if any(each.at == minute for each in last):
            return SampleReport()
        counts = (await self._store.counts()).by_status
        waiting = await self._store.count_waiting()
        for each in (*last, PoolSample(minute, counts, waiting)):
            leases = await self._store.events.count(
                _LEASED, from_ms=(each.at - MINUTE_SEC) * 1000, to_ms=each.at * 1000
            )
            kept_from = minute - KEPT_SEC
            await self._history.record(replace(each, leases=leases), kept_from=kept_from)
        return SampleReport(sampled=1)

    async def read(self, *, hours: int, step_sec: int) -> PoolHistory:
        now = int(self._clock.now())
        since = minute_of(now) - max(hours * 3600, RATE_SEC)
        samples = await self._history.samples(since=since)
        available = samples[-1].available if samples else 0
        return PoolHistory(
            in_steps([each for each in samples if each.at > now - hours * 3600], step_sec),
            outlook(samples, available=available, now=now),
        )
