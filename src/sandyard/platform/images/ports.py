"""The store of images. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from sandyard.platform.entities.apply import OwnedStore
from sandyard.platform.images.model import Image


class ImageStore(OwnedStore[Image], Protocol):
    async def find_any(self, image_id: str) -> Image | None:
        """An image of any account, even a deleted one."""

    async def is_usable(self, account_id: str, image_id: str) -> bool:
        """Whether it is the account's, or of a template that the account may use."""

    async def ready_of(self, account_id: str) -> Sequence[Image]:
        """The account's images that are ready."""

    async def pulling(self) -> Sequence[Image]:
        """Those of all accounts that are being pulled."""

    async def living(self, *, limit: int, after: str) -> Sequence[Image]:
        """Those of all accounts that are not deleted or failed, by id."""

    async def uncounted(self, until: datetime, *, limit: int, after: str) -> Sequence[Image]:
        """Images whose storage is counted only up to before then, by id."""

    async def note_progress(
        self, image_id: str, *, pulled_bytes: int, total_bytes: int, at: datetime
    ) -> None: ...


class ImageRoots(Protocol):
    async def require(self, name: str | None) -> int:
        """As the runtime's: unpack the image on this node, and return its size there."""
