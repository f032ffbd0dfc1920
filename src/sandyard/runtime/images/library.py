"""The images of all accounts in the store of files: each manifest by its image's id, each part by
its SHA-256, and so once for all images that have it."""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sandyard.kit.concurrency.tasks import in_stoppable_thread
from sandyard.kit.errors import BodyTooLargeError
from sandyard.runtime.errors import SnapshotNotFoundError
from sandyard.runtime.images import model
from sandyard.runtime.images.archives import ImageFiles, read_archive
from sandyard.runtime.images.errors import ImageRefusedError
from sandyard.runtime.images.model import Credentials, ImageConfig, Manifest, Part, Reference
from sandyard.runtime.images.registry import Registries, RegistryImage
from sandyard.runtime.images.unpacking import MOST_BYTES
from sandyard.runtime.store.archives import ArchiveFolder

_PIECE_BYTES = 1 << 20
Progress = Callable[[int, int], None]
"""Takes the bytes that are there, and how many there will be."""
Charge = Callable[[int], Awaitable[None]]
"""Called with the size of each part before it is stored; its errors end the work."""


async def free_of_charge(size_bytes: int) -> None:
    del size_bytes


@dataclass(frozen=True, slots=True)
class StoredImage:
    digest: str
    """Of its manifest, as a registry names it."""
    manifest: Manifest
    config: ImageConfig


class ImageLibrary:
    def __init__(
        self, files: ArchiveFolder, registries: Registries, *, most_bytes: int = MOST_BYTES
    ) -> None:
        self.files = files
        self._registries = registries
        self._most_bytes = most_bytes

    async def pull(
        self,
        image_id: str,
        reference: Reference,
        credentials: Credentials | None,
        *,
        owned: Collection[str],
        most_bytes: int,
        progress: Progress,
        charge: Charge = free_of_charge,
    ) -> StoredImage:
        """Store the image under this id. Parts among the `owned`, which the account has in other
        images, are not fetched again; others always are, even if another account has them: a
        manifest that names a part does not prove that its author has it. Raises ImageRefusedError,
        RegistryError, BodyTooLargeError for more bytes than these, and those of storing files."""
        async with self._registries.opened(reference, credentials) as found:
            manifest = found.manifest
            _require_size(manifest, most_bytes)
            done, total = 0, manifest.size_bytes
            for part in manifest.parts:
                if part.sha256 not in owned or not await self._has(part):
                    await charge(part.size_bytes)
                    await self._fetch(found, part, partial(_add, progress, done, total))
                done += part.size_bytes
                progress(done, total)
            return await self._finish(image_id, manifest, found.content)

    async def add(
        self,
        image_id: str,
        source: Path,
        *,
        most_bytes: int,
        progress: Progress,
        charge: Charge = free_of_charge,
    ) -> StoredImage:
        """Store the image of this archive, an OCI layout or an output of `docker save`, which may
        have as many bytes when it is decompressed. Raises as `pull`."""
        with tempfile.TemporaryDirectory(dir=source.parent) as scratch:
            most = min(most_bytes, self._most_bytes)
            read = partial(read_archive, source, Path(scratch), most_bytes=most)
            image = await in_stoppable_thread(
                lambda go_on: read(require_space=go_on), self.files.reserve.require
            )
            if image is None:
                raise ImageRefusedError("It is neither an OCI layout nor made by `docker save`.")
            _require_size(image.manifest, most_bytes)
            done = 0
            for part in image.manifest.parts:
                await charge(part.size_bytes)
                content = _checked(_pieces(image.files[part.sha256]), part)
                await self.files.write(part.sha256, content)
                done += part.size_bytes
                progress(done, image.manifest.size_bytes)
            return await self._finish(image_id, image.manifest, image.manifest.content())

    async def _has(self, part: Part) -> bool:
        """Whether it is there; its use is noted, so that it stays."""
        with suppress(SnapshotNotFoundError):
            return bool(await self.files.require(part.sha256))
        return False

    async def _fetch(self, found: RegistryImage, part: Part, told: Callable[[int], None]) -> None:
        async def counted() -> AsyncIterator[bytes]:
            size = 0
            async for piece in found.read(part):
                size += len(piece)
                told(size)
                yield piece

        await self.files.write(part.sha256, _checked(counted(), part))

    async def _finish(self, image_id: str, manifest: Manifest, content: bytes) -> StoredImage:
        config = await self.config(manifest)
        await self.files.write(image_id, _once(content))
        return StoredImage(f"sha256:{hashlib.sha256(content).hexdigest()}", manifest, config)

    async def config(self, manifest: Manifest) -> ImageConfig:
        if manifest.config.size_bytes > model.MOST_JSON_BYTES:
            raise ImageRefusedError("The image's settings are too large.")
        path = await self.files.require(manifest.config.sha256)
        return model.config_of(model.read_json(await asyncio.to_thread(path.read_bytes)))


async def files_of(files: ArchiveFolder, image_id: str) -> ImageFiles | None:
    """All parts of a stored image, on this node's disk. Raises StoreUnavailableError."""
    try:
        path = await files.require(image_id)
        manifest = model.manifest_of(model.read_json(await asyncio.to_thread(path.read_bytes)))
        parts = {each.sha256: await files.require(each.sha256) for each in manifest.parts}
    except SnapshotNotFoundError:
        return None
    return ImageFiles(manifest, parts)


def _add(progress: Progress, done: int, total: int, more: int) -> None:
    progress(done + more, total)


def _require_size(manifest: Manifest, most_bytes: int) -> None:
    if manifest.size_bytes > most_bytes:
        raise BodyTooLargeError(
            f"The image has {manifest.size_bytes} bytes; at most {most_bytes} can be stored."
        )


async def _checked(pieces: AsyncIterator[bytes], part: Part) -> AsyncIterator[bytes]:
    """Raises ImageRefusedError after the last, if they are not this part."""
    sha256, size = hashlib.sha256(), 0
    async for piece in pieces:
        size += len(piece)
        if size > part.size_bytes:
            raise ImageRefusedError(f"A part of the image is too long: sha256:{part.sha256}.")
        await asyncio.to_thread(sha256.update, piece)
        yield piece
    if sha256.hexdigest() != part.sha256:
        raise ImageRefusedError(f"A part of the image is damaged: sha256:{part.sha256}.")


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield piece


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
