"""`machine_ports.Machines` as Pods of a cluster. Their records are in the cluster too, so that
every server has the same machines."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path

from sandyard.kit.clock import Clock
from sandyard.kit.errors import UnavailableError
from sandyard.runtime import errors
from sandyard.runtime.guest.program import ProgramState
from sandyard.runtime.kubernetes import model
from sandyard.runtime.kubernetes.agent import PodSession
from sandyard.runtime.kubernetes.api import KubernetesApi, Object
from sandyard.runtime.kubernetes.egress import PodsEgress, ProxyAddress
from sandyard.runtime.kubernetes.endings import Agents, Endings
from sandyard.runtime.kubernetes.informer import Informer
from sandyard.runtime.kubernetes.manifest import PodImage, PodOptions
from sandyard.runtime.kubernetes.model import PodEnd
from sandyard.runtime.kubernetes.records import (
    KubernetesRecords,
    KubernetesRunRecord,
    MachineRecord,
)
from sandyard.runtime.kubernetes.starts import PodStarts
from sandyard.runtime.kubernetes.versions import RunVersions
from sandyard.runtime.kubernetes.volumes import PodVolumes
from sandyard.runtime.kubernetes.warm import WarmPods
from sandyard.runtime.machine_ports import Egress
from sandyard.runtime.model import (
    Ended,
    IsolationMode,
    Kind,
    Log,
    MachineSpec,
    MachineState,
    RunId,
    Sample,
    Snapshot,
    Starting,
    Stopping,
    Up,
)
from sandyard.runtime.network_model import NO_RULES, EgressReport, EgressRules, Network
from sandyard.runtime.secrets_model import MachineSecrets
from sandyard.runtime.sessions.model import WORKSPACE
from sandyard.runtime.store.archives import ArchiveFolder

_POLL_SEC = 0.05
_STATUS_SEC = 1.0
"""How long the cluster has to tell that a Pod which does not respond has ended."""


class KubernetesMachines:
    def __init__(
        self,
        api: KubernetesApi,
        options: PodOptions,
        snapshots: ArchiveFolder,
        *,
        clock: Clock,
        start_timeout_sec: float = 120,
        lost_sec: float = 600,
        proxy: ProxyAddress | None = None,
        of_root: KubernetesApi | None = None,
    ) -> None:
        """`start_timeout_sec` is for the scheduler, the image and the agent; `lost_sec` for the
        files of a machine that has ended on a node that is cut off. `of_root` is of the namespace
        of Pods with root."""
        self._apis = (api, *filter(None, [of_root]))
        self._options = options
        self._snapshots = snapshots
        self.clock = clock
        self._pods = Informer(api, "pods", *self._apis[1:])
        self._secrets = Informer(api, "secrets")
        self.records = KubernetesRecords(api, self._secrets, of_root)
        self._agents = Agents(self._pods)
        self._egress = PodsEgress(self._pods, self._agents.pool, proxy=proxy)
        self._endings = Endings(
            self._pods, self._agents, self._egress, snapshots, clock=clock, lost_sec=lost_sec
        )
        self._starts = PodStarts(
            self._pods,
            self._agents,
            self._egress,
            options,
            clock=clock,
            timeout_sec=start_timeout_sec,
        )
        self.volumes = PodVolumes(api, options)
        self.warm = WarmPods(self.records, self._pods)
        self._versions = RunVersions(self._pods, self._secrets, self.records)

    async def close(self) -> None:
        """The machines keep running."""
        await self._pods.close()
        await self._secrets.close()
        await self._agents.pool.close()
        for api in self._apis:
            await api.close()

    async def check(self, isolation: IsolationMode | None = None) -> None:
        if isolation == "gvisor" and self._options.gvisor_class is None:
            raise errors.IsolationMissingError
        await self._synced()

    async def create(self, run_id: RunId, spec: MachineSpec) -> Up:
        if spec.snapshot_id is not None:
            await self.require_snapshot(spec.snapshot_id)
        image = self._image_of(spec)
        await self.volumes.require(spec.mounts)
        record = await self._record_of(run_id)
        async with record.lock() as is_ours:
            if not is_ours or record.machine() is not None:
                raise errors.AttemptEndedError
            created_at = self.clock.now()
            deadline_at = created_at + spec.lifetime_sec
            machine = MachineRecord(created_at, deadline_at, spec.network, image.has_root)
            await self._starts.start(record, machine, image, spec)
            await self._fill(record, spec)
        return Up(run_id, self._options.port, created_at, deadline_at, spec.isolation)

    async def find(self, run_id: RunId) -> MachineState | None:
        record = await self._record_of(run_id)
        if (machine := record.machine()) is None:
            return None
        if (ended := record.ended()) is not None:
            return ended
        if (ending := record.ended(final=False)) is not None:
            return Stopping(run_id, ending.ended_at, ending.message)
        pod = await self._pods.get(record.pod)
        if record.running() is None and not (pod is not None and model.is_up(pod)):
            return Starting(run_id, machine.created_at)
        return Up(run_id, self._options.port, machine.created_at, machine.deadline_at)

    async def refresh(self, run_id: RunId) -> MachineState | None:
        state, record = await self.find(run_id), self.records.of(run_id)
        if isinstance(state, Ended | None):
            return state
        if isinstance(state, Up) and not await self._has_work(record, state):
            return state
        if record.is_locked():
            return state
        async with record.lock() as is_ours:
            return await self._refresh(record) if is_ours else await self.find(run_id)

    async def run_ids(self, kind: Kind) -> Sequence[RunId]:
        return await self.records.run_ids(kind)

    async def versions(self, kind: Kind) -> Mapping[RunId, object]:
        await self._synced()
        return self._versions.of(kind, now=self.clock.now())

    async def pod_states(self) -> Sequence[tuple[model.PodState, float]]:
        """The state of each Pod that has not ended, and since when."""
        await self._synced()
        found: list[tuple[model.PodState, float]] = []
        now, ending = self.clock.now(), self.records.ending()
        for name, pod in self._pods.objects.items():
            if (state := model.state_of(pod, now=now)) is not None:
                found.append(("ending", ending[name]) if name in ending else state)
        return found

    async def session(self, run_id: RunId) -> PodSession:
        record = self.records.of(run_id)
        if not record.exists():
            await self._record_of(run_id)
        return self._session(record)

    async def set_deadline(
        self,
        run_id: RunId,
        deadline_at: float,
        *,
        keeps_memory: bool | None = None,  # noqa: ARG002 - it stores files alone
    ) -> float:
        record = await self._require_up(run_id)
        if (machine := record.machine()) is None:
            raise errors.NotRunningError
        deadline_at = min(deadline_at, machine.created_at + self._options.longest_sec)
        if not await self._agents.of(record).set_deadline(deadline_at):
            raise errors.NotRunningError
        await record.put_machine(replace(machine, deadline_at=deadline_at))
        return deadline_at

    async def stop(self, run_id: RunId, *, has_memory: bool = False) -> None:
        if has_memory:
            raise errors.MemoryNotKeptError
        record = await self._record_of(run_id)
        if record.machine() is not None and not record.stop_is_requested():
            await record.put_stop()

    async def forget(self, run_id: RunId) -> None:
        await self.records.of(run_id).remove()

    async def sample(self, run_id: RunId) -> Sample:
        record = await self._require_up(run_id)
        used = await self._agents.of(record).state()
        inside = await self._session(record).usage()
        return Sample(
            self.clock.now(),
            used.cpu_seconds,
            used.memory_bytes,
            inside.workspace_bytes,
            inside.processes,
        )

    async def workspace_bytes(self, run_id: RunId) -> int:
        return (await (await self.session(run_id)).usage()).workspace_bytes

    async def pack(self, run_id: RunId, to: Path, *, has_memory: bool = False) -> bool:  # noqa: ARG002
        """Its files are read by a session."""
        if has_memory:
            raise errors.MemoryNotKeptError
        return False

    async def entry_point(self, run_id: RunId) -> None:  # noqa: ARG002 - images are environments
        return None

    async def stop_program(self, run_id: RunId) -> None:
        await (await self.session(run_id)).stop_program()

    async def read_log(self, run_id: RunId, begin: int | None) -> Log:
        record = await self._record_of(run_id)
        while (saved := record.log(begin)) is None:
            if record.ended() is not None:
                return Log(begin or 0, b"")
            try:
                return await self._session(record).read_log(begin)
            except errors.NotRunningError:  # its end saves the log
                if not isinstance(await self.refresh(run_id), Up | Stopping):
                    continue
                await asyncio.sleep(_POLL_SEC)
            except UnavailableError:
                if record.ended(final=False) is None:
                    raise
                await asyncio.sleep(_POLL_SEC)
        return saved

    @asynccontextmanager
    async def egress(self, run_id: RunId) -> AsyncIterator[Egress]:
        async with self._egress.opened(self.records.of(run_id)) as opened:
            yield opened

    async def set_network(
        self, run_id: RunId, network: Network, rules: EgressRules = NO_RULES
    ) -> None:
        await self._egress.set_network(await self._require_up(run_id), network, rules)

    async def set_secrets(self, run_id: RunId, secrets: MachineSecrets) -> None:  # noqa: ARG002
        raise errors.SecretsUnsupportedError

    async def egress_report(self, run_id: RunId) -> EgressReport:
        return await self._egress.report(await self._record_of(run_id))

    async def has_snapshot(self, snapshot_id: str) -> bool:
        return await self._snapshots.find(snapshot_id) is not None

    async def require_snapshot(self, snapshot_id: str) -> None:
        await self._snapshots.require(snapshot_id)

    async def store_snapshot(self, snapshot_id: str, *, timeout_sec: float | None = None) -> None:
        """No machine has ended before its snapshot is stored."""

    async def list_snapshots(self) -> Sequence[Snapshot]:
        await self._synced()
        return await self._snapshots.list_stored()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._synced()
        await self._snapshots.delete(snapshot_id)

    async def _synced(self) -> None:
        await self._pods.synced()
        await self._secrets.synced()

    async def _record_of(self, run_id: RunId) -> KubernetesRunRecord:
        """The record as the cluster has it now."""
        await self._synced()
        record = self.records.of(run_id)
        await self._secrets.get(record.name)
        return record

    def _image_of(self, spec: MachineSpec) -> PodImage:
        options = self._options
        image = options.image if spec.root is None else options.images.get(spec.root)
        if image is None:
            raise errors.EnvironmentMissingError
        if image.has_root and spec.mounts:
            raise errors.StartFailedError("Sandboxes with root have no volumes in a cluster.")
        return image

    async def _fill(self, record: KubernetesRunRecord, spec: MachineSpec) -> None:
        session = self._session(record)
        await session.prepare()
        if spec.snapshot_id is not None:
            await session.files.write_tar(WORKSPACE, self._snapshots.read(spec.snapshot_id))

    def _session(self, record: KubernetesRunRecord) -> PodSession:
        if record.ended(final=False) is not None:
            raise errors.NotRunningError

        def has_ended(pod: Object | None) -> bool:
            return pod is None or model.end_of(pod, now=self.clock.now()) is not None

        async def is_running() -> bool:
            """Only the cluster says that it is gone: what does not respond may still run."""
            await self._synced()
            if record.ended(final=False) is not None:
                return False
            pod = await self._pods.until(record.pod, has_ended, timeout_sec=_STATUS_SEC)
            return not has_ended(pod)

        return self._agents.of(record).session(is_running)

    async def _require_up(self, run_id: RunId) -> KubernetesRunRecord:
        state, record = await self.find(run_id), self.records.of(run_id)
        if state is None:
            raise errors.RunNotFoundError
        if not isinstance(state, Up) or record.stop_is_requested():
            raise errors.NotRunningError
        return record

    async def _has_work(self, record: KubernetesRunRecord, up: Up) -> bool:
        """Whether something has ended it, or should."""
        now = self.clock.now()
        pod = self._pods.objects.get(record.pod)
        if (
            pod is None
            or record.stop_is_requested()
            or model.is_deleted(pod)
            or model.end_of(pod, now=now) is not None
            or now >= up.deadline_at
        ):
            return True
        return await self._has_exited(record) is not None

    async def _has_exited(self, record: KubernetesRunRecord) -> ProgramState | None:
        """Its program, if its end is that of the machine. One that can't be asked runs."""
        try:
            recorded = record.program()
            recorded_at = 0.0 if recorded is None else recorded.since_at
            program = await self._agents.of(record).program(recorded_at=recorded_at)
        except (UnavailableError, errors.NotRunningError):
            return None
        if program is None:
            return None
        if program.policy == "ends_machine" and program.is_over:
            return program
        # What is recorded here, such as why there is nothing to start, may be newer.
        if recorded != program and recorded_at <= program.since_at:
            await record.put("program", asdict(program))
        return None

    async def _refresh(self, record: KubernetesRunRecord) -> MachineState | None:
        """Under the lock: completes interrupted steps."""
        state, now = await self.find(record.run_id), self.clock.now()
        pod = await self._pods.fresh(record.pod)
        match state:
            case Stopping():
                return await self._endings.finish(record)
            case Starting():  # its creator is gone
                return await self._endings.end(record, "killed")
            case Up() if pod is None:
                return await self._endings.record_end(record, self._lost(record, state))
            case Up() if (end := model.end_of(pod or {}, now=now)) is not None:
                return await self._endings.record_end(record, end)
            case Up() if record.stop_is_requested():
                return await self._endings.end(record, "stopped")
            case Up() if now >= state.deadline_at:
                return await self._endings.end(record, "timeout")
            case Up() if model.is_deleted(pod or {}):
                return await self._endings.end(record, "terminated")
            case Up() if (program := await self._has_exited(record)) is not None:
                return await self._endings.end(record, "exited", code=program.exit_code)
        return state

    def _lost(self, record: KubernetesRunRecord, up: Up) -> PodEnd:
        """Its Pod is gone: it ended when it was last seen, at its deadline at the latest."""
        seen = (
            up.created_at,
            record.launched_at() or 0.0,
            self._pods.seen_at.get(record.pod, 0.0),
        )
        if (at := max(seen)) >= up.deadline_at:
            return PodEnd("timeout", up.deadline_at, "It reached its time limit.")
        return PodEnd("killed", at, "It was killed, with its Pod, which is gone.")
