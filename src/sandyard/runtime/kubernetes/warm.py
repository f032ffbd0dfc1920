"""Warm machines in a cluster: any server hands them out, by a Secret of the new run that names the
Pod."""

from collections.abc import Sequence
from dataclasses import dataclass

from sandyard.runtime.kubernetes import manifest
from sandyard.runtime.kubernetes.informer import Informer
from sandyard.runtime.kubernetes.records import KubernetesRecords
from sandyard.runtime.model import Limits, RunId, Running
from sandyard.runtime.records.recorded_run import begun_record, running_record


@dataclass(frozen=True, slots=True, eq=False)
class WarmPods:
    """`WarmRecords` of a cluster."""

    records: KubernetesRecords
    pods: Informer
    is_shared = True

    async def warm_ids(self) -> Sequence[RunId]:
        return await self.records.run_ids("warm")

    async def taken_at(self, run_id: RunId) -> float | None:
        return self.records.of(run_id).taken_at()

    async def take(self, run_id: RunId, *, to: RunId | None = None) -> bool:
        return await self.records.of(run_id).take("" if to is None else str(to))

    async def hand_over(self, run_id: RunId, to: Running, limits: Limits) -> None:
        warm, record = self.records.of(run_id), self.records.of(to.run_id)
        at = to.started_at
        records = {"begun": begun_record(limits, at), "launched": {"at": at}}
        await record.take_over(warm, records | {"running": running_record(to)})
        if (pod := self.pods.objects.get(warm.pod)) is not None:
            identity = {"metadata": manifest.identity(to.run_id)}
            await self.pods.api_of(pod).patch("pods", warm.pod, identity)
        await warm.remove()

    async def is_handed_over(self, run_id: RunId) -> bool:
        """Then what a server that was killed has left of it is removed."""
        warm = self.records.of(run_id)
        if not (to := warm.taken_for()):
            return False
        is_there = await self.records.secrets.get(manifest.name_of(RunId.of(to))) is not None
        if is_there:
            await warm.remove()
        return is_there
