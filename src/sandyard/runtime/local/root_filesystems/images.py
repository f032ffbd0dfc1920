"""Images of accounts, unpacked on this node when they are first used."""

import asyncio
from collections.abc import Collection
from functools import partial
from pathlib import Path

from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.tasks import KeyedLocks, in_stoppable_thread
from sandyard.runtime.errors import EnvironmentMissingError
from sandyard.runtime.images.library import files_of
from sandyard.runtime.images.model import IMAGE_ID
from sandyard.runtime.images.unpacking import MOST_BYTES
from sandyard.runtime.local.root_filesystems.store import RootFilesystem, RootFilesystems
from sandyard.runtime.records.disk_reserve import DiskReserve
from sandyard.runtime.store.archives import ArchiveFolder
from sandyard.runtime.store.layers import NoLayers

_AT_ONCE = 2
_UNUSED_SEC = 7 * 86_400
IMAGES = "images"
"""The folder of their parts, in the folder of the runtime."""


class ImageRoots:
    def __init__(
        self,
        folder: Path,
        clock: Clock,
        reserve: DiskReserve,
        layers: NoLayers | None = None,
        *,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._most_bytes = most_bytes
        self.files = ArchiveFolder(folder / IMAGES, reserve, layers, "images")
        self._roots = RootFilesystems(folder)
        self._clock = clock
        self._locks = KeyedLocks()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def require(self, name: str | None) -> int:
        """Return when machines can start from this root file system here, with its size on this
        node's disk; at once unless it is an image. Raises EnvironmentMissingError,
        ImageRefusedError, DiskFullError, StoreUnavailableError."""
        if name is None or not IMAGE_ID.fullmatch(name):
            return 0
        async with self._locks.of(name):
            found = await asyncio.to_thread(self._roots.find, name)
            if found is None:
                async with self._slots:
                    found = await self._unpack(name)
        await asyncio.to_thread(self._roots.note_use, name)
        return found.size_bytes

    async def _unpack(self, image_id: str) -> RootFilesystem:
        image = await files_of(self.files, image_id)
        if image is None:
            raise EnvironmentMissingError(f"There is no image {image_id!r} here.")
        most_bytes, now = self._most_bytes, self._clock.now()
        add = partial(self._roots.add_image, image_id, image, now=now, most_bytes=most_bytes)
        return await in_stoppable_thread(
            lambda go_on: add(require_space=go_on), self.files.reserve.require
        )

    async def keep_only(self, image_ids: Collection[str]) -> None:
        """Remove other images from this node's disk, and those unused for a week."""
        since = self._clock.now() - _UNUSED_SEC
        await asyncio.to_thread(self._roots.remove_images, image_ids, unused_since=since)
