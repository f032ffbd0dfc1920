"""How a Pod's machine ends: its log and its files are stored, then the Pod is deleted.

An end is recorded before anything is done, so that any server can complete it.
"""

from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace

from sandyard.kit.clock import Clock
from sandyard.runtime import errors
from sandyard.runtime.kubernetes import manifest, model
from sandyard.runtime.kubernetes.agent import Agent, AgentUnavailableError, PodSession
from sandyard.runtime.kubernetes.api import Object
from sandyard.runtime.kubernetes.egress import EgressUnavailableError, PodsEgress
from sandyard.runtime.kubernetes.informer import Informer
from sandyard.runtime.kubernetes.model import PodEnd
from sandyard.runtime.kubernetes.records import KubernetesRunRecord
from sandyard.runtime.model import Ended, EndReason, RunId, Snapshot
from sandyard.runtime.programs.lifecycle import end_message
from sandyard.runtime.remote.backoff import Backoff
from sandyard.runtime.remote.http import HttpPool
from sandyard.runtime.sessions.model import WORKSPACE
from sandyard.runtime.store.archives import ArchiveFolder
from sandyard.runtime.store.errors import StoringError

_COMMAND_SEC = 30.0


class Agents:
    """The agents of the Pods that are up, each made once."""

    def __init__(self, pods: Informer) -> None:
        self.pool = HttpPool(Backoff())
        self._pods = pods
        self._agents: dict[str, Agent] = {}

    def of(self, record: KubernetesRunRecord) -> Agent:
        """Raises NotRunningError."""
        pod = self._pods.objects.get(record.pod)
        if pod is None or not model.is_up(pod):
            raise errors.NotRunningError
        keys = [record.text(name) for name in ("token", "certificate", "key")]
        address, uid = model.address_of(pod), pod["metadata"]["uid"]
        if address is None or None in keys:
            raise errors.NotRunningError
        if uid not in self._agents:
            known = manifest.Keys(*(each or "" for each in keys))
            self._agents[uid] = Agent(
                self.pool, record.run_id, address, known, timeout_sec=_COMMAND_SEC
            )
        return self._agents[uid]

    def drop(self, uid: str) -> None:
        self._agents.pop(uid, None)


@dataclass(slots=True, eq=False)
class Endings:
    pods: Informer
    agents: Agents
    egress: PodsEgress
    snapshots: ArchiveFolder
    _: KW_ONLY
    clock: Clock
    lost_sec: float
    """How long the files of a Pod that does not respond are waited for, after its end."""

    async def end(
        self, record: KubernetesRunRecord, reason: EndReason, *, code: int | None = None
    ) -> Ended:
        message = end_message(reason, code)
        ended = Ended(record.run_id, reason, self.clock.now(), exit_code=code, message=message)
        await record.put_ended(ended, final=False)
        return await self.finish(record)

    async def record_end(self, record: KubernetesRunRecord, end: PodEnd) -> Ended:
        """The end of a Pod that has already ended, with what was in it."""
        ended = Ended(record.run_id, end.reason, end.at, message=end.message)
        if (running := record.running()) is not None:  # the cluster's times are whole seconds
            at = max(end.at, running.started_at)
            ended = replace(ended, ended_at=at, snapshot_error="Its files ended with its Pod.")
        await record.put_ended(ended, final=False)
        return await self.finish(record)

    async def finish(self, record: KubernetesRunRecord) -> Ended:
        """Complete the recorded end, from wherever it was interrupted. Raises UnavailableError
        while its files can't be stored."""
        ended = record.ended(final=False)
        if ended is None:
            raise errors.RuntimeUnavailableError(reason=f"no end of {record.name} is recorded")
        pod = await self.pods.fresh(record.pod)
        if pod is not None and model.end_of(pod, now=self.clock.now()) is None:
            ended = await self._collect(record, ended, pod)
        elif record.running() is not None and ended.snapshot is None:
            ended = replace(ended, snapshot_error="Its files ended with its Pod.")
        if pod is not None:
            with suppress(EgressUnavailableError):
                await self.egress.report(record)
            api, uid = self.pods.api_of(pod), pod["metadata"]["uid"]
            await api.delete("pods", record.pod, uid=uid)
            self.agents.drop(uid)
        await record.remove_keys()
        await record.put_ended(ended)
        return ended

    async def _collect(self, record: KubernetesRunRecord, ended: Ended, pod: Object) -> Ended:
        """The end as the agent recorded it, with its log and files stored."""
        try:
            agent = self.agents.of(record)
            told = await agent.end(ended.reason)
            session = agent.session(_always)
            ended = _as_told(ended, told)
            if record.launched_at() is not None:
                await record.put_log(await session.read_log())
            if record.running() is not None and ended.snapshot is None:
                ended = replace(ended, snapshot=await self._store(session, record.run_id))
            await record.put_ended(ended, final=False)
            await agent.exit()
        except (AgentUnavailableError, errors.NotRunningError) as error:
            if not model.is_up(pod):  # it never came up
                return ended
            if self.clock.now() < ended.ended_at + self.lost_sec:
                raise AgentUnavailableError(reason=error.message) from error
            if ended.snapshot is None and record.running() is not None:
                return replace(ended, snapshot_error=error.message)
        return ended

    async def _store(self, session: PodSession, run_id: RunId) -> Snapshot:
        snapshot_id = snapshot_id_of(run_id)
        content = session.files.read_tar(WORKSPACE)
        try:
            written = await self.snapshots.write(snapshot_id, content)
            return await self.snapshots.find_stored(snapshot_id) or written
        except StoringError as error:
            raise errors.RuntimeUnavailableError(reason=error.message) from error


def snapshot_id_of(run_id: RunId) -> str:
    return f"{run_id.kind}.{run_id.id}.{run_id.attempt}"


def _as_told(ended: Ended, told: dict[str, object]) -> Ended:
    """The agent's first reason is the true one: it may have ended before it was asked to."""
    reason, ended_at = told.get("reason"), told.get("ended_at")
    if not isinstance(ended_at, float):
        return ended
    ended = replace(ended, ended_at=min(ended.ended_at, ended_at))
    if reason in ("timeout", "terminated") and ended.reason == "stopped":
        return replace(ended, reason=reason, message=end_message(reason))
    return ended


async def _always() -> bool:
    return True
