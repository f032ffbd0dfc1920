"""The job that samples the sandboxes of this machine."""

from dataclasses import dataclass
from datetime import timedelta

from sandyard.kit.clock import utc_time
from sandyard.kit.ids import resource_id
from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.measurements.model import Measurement, cpu_share, share
from sandyard.platform.measurements.ports import MeasurementStore
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.node import SandboxNode, run_id_of
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.runtime.model import Sample

_BATCH = 1000


@dataclass(slots=True)
class MeasureReport:
    measured: int = 0
    removed: int = 0


class Measure:
    def __init__(self, store: MeasurementStore, node: SandboxNode, *, retention: timedelta) -> None:
        self._store = store
        self._node = node
        self._retention = retention
        self._last: dict[tuple[str, int], Sample] = {}

    async def run(self) -> MeasureReport:
        now = self._node.now()
        active = await self._node.store.active_on(self._node.name)
        running = [each for each in active if each.status is Status.RUNNING]
        found = [(each, await self._sample(each)) for each in running]
        measured = [self._measured(each, sample) for each, sample in found if sample is not None]
        await self._store.add(measured)
        self._last = {
            (each.sandbox_id, each.attempt): sample for each, sample in found if sample is not None
        }
        report = MeasureReport(measured=len(measured))
        while removed := await self._store.remove_before(now - self._retention, limit=_BATCH):
            report.removed += removed
        return report

    async def _sample(self, sandbox: Sandbox) -> Sample | None:
        with retried_later("measure", sandbox.sandbox_id):
            return await self._node.runtime.sample(run_id_of(sandbox))
        return None

    def _measured(self, sandbox: Sandbox, sample: Sample) -> Measurement:
        started = sandbox.started_at or sandbox.updated_at
        before = self._last.get((sandbox.sandbox_id, sandbox.attempt))
        return Measurement(
            metric_id=resource_id("mtr"),
            sandbox_id=sandbox.sandbox_id,
            timestamp=utc_time(sample.at),
            cpu_utilization=cpu_share(
                before, sample, started_at=started.timestamp(), cpu=sandbox.cpu_spec
            ),
            memory_utilization=share(sample.memory_bytes, sandbox.memory_spec * GIGABYTE),
            storage_utilization=share(sample.storage_bytes, self._node.storage_bytes),
        )
