"""The files of volumes on this host."""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from sandyard.kit.clock import Clock
from sandyard.runtime.errors import RuntimeUnavailableError, VolumesUnsupportedError
from sandyard.runtime.local.server.enforcement import find_enforcement
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.local.server.specs import VOLUMES
from sandyard.runtime.local.storage.persistent_volumes import PersistentVolume, stored_volumes
from sandyard.runtime.local.storage.shared_files import BLANKS
from sandyard.runtime.records.disk_reserve import DiskReserve


class LocalVolumes:
    def __init__(
        self,
        folder: Path,
        options: LocalOptions,
        clock: Clock,
        reserve: DiskReserve,
        *,
        within_sec: float = 10,
    ) -> None:
        """`folder` is the runtime's. A machine that ends may take `within_sec` to be gone."""
        self._within_sec = within_sec
        self._folder = folder.absolute()
        self._options = options
        self._clock = clock
        self._reserve = reserve

    async def create(self, volume_id: str, size_bytes: int, *, copy_of: str | None = None) -> None:
        def make() -> None:
            blanks = self._blanks()
            self._reserve.require()
            if copy_of is not None:
                self._of(volume_id).copy(self._of(copy_of))
            else:
                self._of(volume_id).make(size_bytes, blanks=blanks, now=self._clock.now())

        await _in_thread(make)

    async def resize(self, volume_id: str, size_bytes: int) -> None:
        await _in_thread(lambda: self._of(volume_id).resize(size_bytes))

    async def delete(self, volume_id: str) -> None:
        await _in_thread(self._of(volume_id).remove)

    async def written_at(self) -> Mapping[str, float]:
        found: dict[str, float] = {}
        await _in_thread(lambda: found.update(stored_volumes(self._folder / VOLUMES)))
        return found

    def _of(self, volume_id: str) -> PersistentVolume:
        folder = self._folder / VOLUMES
        return PersistentVolume(folder, volume_id, within_sec=self._within_sec)

    def _blanks(self) -> Path | None:
        """Where the blank images are; None if volumes are folders. VolumesUnsupportedError."""
        if self._options.isolation == "none":
            raise VolumesUnsupportedError
        if os.geteuid():
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        found = find_enforcement(self._options, self._folder, self._clock.now())
        if not found.has_root or found.volume != "image":
            raise VolumesUnsupportedError
        return self._folder / BLANKS


async def _in_thread(work: Callable[[], None]) -> None:
    try:
        await asyncio.to_thread(work)
    except OSError as error:
        raise RuntimeUnavailableError(reason=str(error)) from error
