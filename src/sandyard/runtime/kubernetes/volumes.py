"""The files of volumes in a cluster: a claim for each, which Pods mount."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from sandyard.runtime import errors
from sandyard.runtime.kubernetes import claims, model
from sandyard.runtime.kubernetes.api import (
    ConflictError,
    InvalidObjectError,
    Kind,
    KubernetesApi,
    Object,
)
from sandyard.runtime.kubernetes.manifest import SELECTOR, PodOptions
from sandyard.runtime.model import Mount

_CLAIMS: Kind = "persistentvolumeclaims"
_POLL_SEC = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class PodVolumes:
    """`VolumeFiles` of a cluster."""

    api: KubernetesApi
    options: PodOptions
    _: KW_ONLY
    copy_sec: float = 900
    """How long a copy may take, with the start of its Pod."""

    async def create(self, volume_id: str, size_bytes: int, *, copy_of: str | None = None) -> None:
        claim = claims.claim(volume_id, size_bytes, self.options.volume_class)
        try:
            await self.api.create(_CLAIMS, claim)
        except ConflictError:
            return
        except InvalidObjectError as error:
            raise _not_here(error) from error
        if copy_of is not None:
            await self._copy(copy_of, volume_id)

    async def resize(self, volume_id: str, size_bytes: int) -> None:
        """The file system grows with its next mount."""
        name = claims.name_of(volume_id)
        if (found := await self.api.get(_CLAIMS, name)) is None:
            raise errors.VolumeFilesMissingError
        if size_bytes < claims.size_of(found):
            raise errors.VolumeTooSmallError("In Pods a volume only grows.")
        try:
            await self.api.patch(_CLAIMS, name, claims.resized(size_bytes))
        except InvalidObjectError as error:
            raise _not_here(error) from error

    async def delete(self, volume_id: str) -> None:
        """The cluster deletes it when no Pod has it any more."""
        name = claims.name_of(volume_id)
        if (found := await self.api.get(_CLAIMS, name)) is not None:
            await self.api.delete(_CLAIMS, name, uid=found["metadata"]["uid"])

    async def written_at(self) -> Mapping[str, float]:
        """When each was made: what is written since, only Pods know."""
        found, _ = await self.api.list(_CLAIMS, selector=SELECTOR)
        return {claims.volume_id_of(each): claims.made_at(each) for each in found}

    async def require(self, mounts: Sequence[Mount]) -> None:
        """Raises VolumeFilesMissingError."""
        for each in mounts:
            if await self.api.get(_CLAIMS, claims.name_of(each.volume_id)) is None:
                raise errors.VolumeFilesMissingError

    async def _copy(self, source: str, target: str) -> None:
        pod = claims.copying_pod(source, target, self.options, seconds=int(self.copy_sec))
        made = await self.api.create("pods", pod)
        name, uid = made["metadata"]["name"], made["metadata"]["uid"]
        try:
            async with asyncio.timeout(self.copy_sec):
                while (phase := _phase_of(made)) not in ("Succeeded", "Failed"):
                    await asyncio.sleep(_POLL_SEC)
                    made = await self.api.get("pods", name) or {}
        except TimeoutError as error:
            raise errors.RuntimeUnavailableError(reason=_why(made)) from error
        finally:
            await self.api.delete("pods", name, uid=uid)
        if phase == "Failed":
            raise errors.RuntimeUnavailableError(reason=_why(made))


def _phase_of(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", "Pending")) if pod else "Failed"


def _why(pod: Object) -> str:
    """Why a copy was not made."""
    return model.unscheduled_reason(pod) or f"the Pod that copies is {_phase_of(pod)}"


def _not_here(error: InvalidObjectError) -> errors.VolumesUnsupportedError:
    return errors.VolumesUnsupportedError(f"The cluster refuses this volume: {error}.")
