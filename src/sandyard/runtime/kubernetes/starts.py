"""How a Pod is made, and waited for until its agent responds."""

import asyncio
from dataclasses import KW_ONLY, dataclass

from sandyard.kit.clock import Clock
from sandyard.runtime import errors
from sandyard.runtime.kubernetes import manifest, model
from sandyard.runtime.kubernetes.agent import AgentUnavailableError
from sandyard.runtime.kubernetes.api import (
    ApiUnavailableError,
    ConflictError,
    InvalidObjectError,
    KubernetesApi,
    Object,
)
from sandyard.runtime.kubernetes.endings import Agents
from sandyard.runtime.kubernetes.informer import Informer
from sandyard.runtime.kubernetes.records import KubernetesRunRecord

_POLL_SEC = 0.05
_ATTEMPTS = 3


@dataclass(slots=True, eq=False)
class PodStarts:
    api: KubernetesApi
    pods: Informer
    agents: Agents
    _: KW_ONLY
    clock: Clock
    timeout_sec: float

    async def make(self, pod: Object) -> None:
        """A create whose response was lost may have made it: the second finds the first."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                self.pods.note(await self.api.create("pods", pod))
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

    async def until_up(self, record: KubernetesRunRecord) -> None:
        """Return when its agent responds. Raises StartFailedError."""
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
