"""How a Pod is made, and waited for until its agent responds."""

import asyncio
from dataclasses import KW_ONLY, asdict, dataclass
from secrets import token_hex

from sandyard.kit.clock import Clock
from sandyard.runtime import errors
from sandyard.runtime.kubernetes import manifest, model
from sandyard.runtime.kubernetes.agent import AgentUnavailableError, make_keys
from sandyard.runtime.kubernetes.api import (
    ApiUnavailableError,
    ConflictError,
    InvalidObjectError,
    Object,
)
from sandyard.runtime.kubernetes.claims import add_volumes
from sandyard.runtime.kubernetes.egress import PodsEgress
from sandyard.runtime.kubernetes.egress_policy import annotation, credentials_of
from sandyard.runtime.kubernetes.endings import Agents
from sandyard.runtime.kubernetes.informer import Informer
from sandyard.runtime.kubernetes.manifest import PodImage, PodOptions
from sandyard.runtime.kubernetes.records import KubernetesRunRecord, MachineRecord
from sandyard.runtime.model import MachineSpec

_POLL_SEC = 0.05
_ATTEMPTS = 3


@dataclass(slots=True, eq=False)
class PodStarts:
    pods: Informer
    agents: Agents
    egress: PodsEgress
    options: PodOptions
    _: KW_ONLY
    clock: Clock
    timeout_sec: float

    async def start(
        self,
        record: KubernetesRunRecord,
        machine: MachineRecord,
        image: PodImage,
        spec: MachineSpec,
    ) -> None:
        """Return when its agent responds. Raises StartFailedError."""
        await record.put_machine(machine, durable=False)
        keys, egress = asdict(make_keys()), None
        if (url := await self.egress.url(record.name)) is not None:
            keys["proxy"] = url
            egress = annotation(credentials_of(url), spec.network, spec.rules)
        await record.put_keys(keys, has_root=image.has_root)
        pod = manifest.pod(
            record.run_id,
            spec.limits,
            self.options,
            image=image,
            isolation=spec.isolation,
            egress=egress,
            deadline_at=machine.deadline_at,
            creation=token_hex(8),
        )
        add_volumes(pod, spec.mounts)
        await self._make(pod)
        await self._until_up(record)

    async def _make(self, pod: Object) -> None:
        """A create whose response was lost may have made it: the second finds the first."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                self.pods.note(await self.pods.api_of(pod).create("pods", pod))
                break
            except ConflictError as error:
                found = await self.pods.fresh(pod["metadata"]["name"])
                if found is None or _creation(found) != _creation(pod):
                    raise errors.AttemptEndedError from error
                break
            except InvalidObjectError as error:
                raise errors.StartFailedError(f"The cluster does not admit it: {error}.") from error
            except ApiUnavailableError:
                if not left:
                    raise
                await asyncio.sleep(_POLL_SEC)

    async def _until_up(self, record: KubernetesRunRecord) -> None:
        until = self.clock.now() + self.timeout_sec
        pod = await self.pods.until(record.name, self._is_decided, timeout_sec=self.timeout_sec)
        trouble = None if pod is None else self._trouble_of(pod)
        if pod is None or not model.is_up(pod):
            raise errors.StartFailedError(trouble or "Its Pod did not start in time.")
        while True:
            try:
                await self.agents.of(record).state()
            except AgentUnavailableError:
                if self.clock.now() > until:
                    raise
                await asyncio.sleep(_POLL_SEC)
            else:
                return

    def _is_decided(self, pod: Object | None) -> bool:
        if pod is None:
            return False
        return (
            model.is_up(pod)
            or model.start_trouble(pod) is not None
            or model.end_of(pod, now=self.clock.now()) is not None
        )

    def _trouble_of(self, pod: Object) -> str | None:
        if (end := model.end_of(pod, now=self.clock.now())) is not None:
            return end.message
        return model.start_trouble(pod) or model.unscheduled_reason(pod)


def _creation(pod: Object) -> str:
    return str(pod["metadata"]["annotations"].get(manifest.CREATION))
