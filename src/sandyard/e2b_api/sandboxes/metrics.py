"""Metrics of sandboxes in the format of E2B's API."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from sandyard.e2b_api.model import SandboxView, iso
from sandyard.kit.clock import Clock, utc_time
from sandyard.platform.measurements.model import MeasurementBucket, cpu_share, share
from sandyard.platform.measurements.ports import MeasurementStore
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.runtime.errors import NotRunningError, RunNotFoundError
from sandyard.runtime.model import Sample

_BUCKET_SEC = 5
_LONGEST = timedelta(days=7)


Sampler = Callable[[Sandbox], Awaitable[Sample]]


class SandboxMetrics:
    def __init__(self, store: MeasurementStore, sample: Sampler, *, clock: Clock) -> None:
        self._store = store
        self._sample = sample
        self._clock = clock

    async def list(
        self, view: SandboxView, *, start: float | None, end: float | None
    ) -> Sequence[dict[str, Any]]:
        """Oldest first; without a span, of its whole life, but at most of a week."""
        sandbox = view.sandbox
        until = utc_time(end) if end else utc_time(self._clock.now()) + timedelta(seconds=1)
        since = utc_time(start) if start else sandbox.created_at
        since = max(since, until - _LONGEST)
        if since >= until:
            return []
        found = await self._store.buckets(
            sandbox.sandbox_id, start=since, end=until, bucket_sec=_BUCKET_SEC
        )
        samples = [_sample(view, each) for each in found]
        latest = await self.latest(view) if end is None else None
        return samples if latest is None else [*samples, latest]

    async def latest(self, view: SandboxView) -> dict[str, Any] | None:
        """Its current usage; None if it does not run."""
        sandbox = view.sandbox
        try:
            sample = await self._sample(sandbox)
        except (NotRunningError, RunNotFoundError):
            return None
        began_at = (sandbox.started_at or sandbox.created_at).timestamp()
        return _sample(
            view,
            MeasurementBucket(
                start=utc_time(sample.at),
                cpu_utilization=cpu_share(None, sample, started_at=began_at, cpu=sandbox.cpu_spec),
                memory_utilization=share(sample.memory_bytes, sandbox.memory_spec * (1 << 30)),
                storage_utilization=share(sample.storage_bytes, view.disk_mb << 20),
                count=1,
            ),
        )


def _sample(view: SandboxView, bucket: MeasurementBucket) -> dict[str, Any]:
    sandbox = view.sandbox
    memory, disk = int(sandbox.memory_spec * (1 << 30)), view.disk_mb << 20
    return {
        "timestamp": iso(bucket.start),
        "timestampUnix": int(bucket.start.timestamp()),
        "cpuCount": max(1, int(sandbox.cpu_spec)),
        "cpuUsedPct": bucket.cpu_utilization,
        "memUsed": int(memory * bucket.memory_utilization / 100),
        "memTotal": memory,
        "memCache": 0,
        "diskUsed": int(disk * bucket.storage_utilization / 100),
        "diskTotal": disk,
    }
