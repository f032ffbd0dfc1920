"""The files of volumes in a cluster: a claim for each, which Pods mount."""

import asyncio
import time
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
_LEFT: tuple[Kind, ...] = ("pods", _CLAIMS)
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
        claim = claims.claim(volume_id, size_bytes, self.options.volume_class, copy_of=copy_of)
        try:
            made = await self.api.create(_CLAIMS, claim)
        except ConflictError:
            if await self._is_whole(volume_id):
                return
            await self._discard(volume_id)
            made = await self.api.create(_CLAIMS, claim)
        except InvalidObjectError as error:
            raise _not_here(error) from error
        if copy_of is not None:
            await self._copy(copy_of, volume_id)
            await self.api.patch(_CLAIMS, made["metadata"]["name"], claims.COPIED)

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

    async def _is_whole(self, volume_id: str) -> bool:
        found = await self.api.get(_CLAIMS, claims.name_of(volume_id))
        return found is not None and not claims.is_being_copied(found)

    async def _discard(self, volume_id: str) -> None:
        """What a copy that was interrupted has left, and the Pod that may still write it."""
        name = claims.name_of(volume_id)
        until = time.monotonic() + self.copy_sec
        for kind in _LEFT:
            while (found := await self.api.get(kind, name)) is not None:
                if time.monotonic() > until:
                    raise errors.RuntimeUnavailableError(reason=f"{kind} {name} is not deleted")
                await self.api.delete(kind, name, uid=found["metadata"]["uid"])
                await asyncio.sleep(_POLL_SEC)

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
