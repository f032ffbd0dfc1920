"""The job of each node that removes what is left of images."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock, utc_time
from sandyard.platform.images import model
from sandyard.platform.images.model import Image
from sandyard.platform.images.ports import ImageStore
from sandyard.runtime.store.archives import ArchiveFolder

_UNSEEN_FOR = timedelta(minutes=2)
_UNREFERENCED_FOR = timedelta(hours=2)
"""A pull stores parts before its image has them, and takes an hour at most."""
_PAGE = 200
_ACTOR = actor("job", "images")


class UnpackedImages(Protocol):
    async def keep_only(self, image_ids: list[str]) -> None: ...


@dataclass(slots=True)
class ImagesReport:
    given_up: int = 0
    """Pulls whose process has gone."""
    parts_removed: int = 0


class CleanImages:
    def __init__(
        self,
        store: ImageStore,
        files: ArchiveFolder,
        uploads: ArchiveFolder,
        roots: UnpackedImages | None,
        *,
        clock: Clock,
    ) -> None:
        self._store = store
        self._files = files
        self._uploads = uploads
        self._roots = roots
        self._clock = clock

    async def run(self) -> ImagesReport:
        report, cause = ImagesReport(), Cause.by(_ACTOR, self._clock)
        for image in await self._store.pulling():
            gone = model.give_up(image, unseen_since=cause.at - _UNSEEN_FOR, cause=cause)
            report.given_up += gone is not None and await self._store.apply(gone)
        old = await self._old(self._files)  # before the images: what is needed is named by then
        wanted: set[str] = set()
        image_ids = []
        async for image in self._living():
            image_ids.append(image.image_id)
            wanted |= {image.image_id, *(image.parts or ())}
        for part in old - wanted:
            await self._files.delete(part)
            report.parts_removed += 1
        for upload in await self._old(self._uploads):
            await self._uploads.delete(upload)
        if self._roots is not None:
            await self._roots.keep_only(image_ids)
        return report

    async def _old(self, folder: ArchiveFolder) -> set[str]:
        before = utc_time(self._clock.now()) - _UNREFERENCED_FOR
        return {each.id for each in await folder.list_all() if utc_time(each.created_at) < before}

    async def _living(self) -> AsyncIterator[Image]:
        after = ""
        while page := await self._store.living(limit=_PAGE, after=after):
            after = page[-1].image_id
            for image in page:
                yield image
