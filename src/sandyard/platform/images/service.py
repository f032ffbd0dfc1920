"""The use cases of images. What is pulled or uploaded is stored in the background."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.kit.errors import RateLimitedError, SandyardError, UnavailableError
from sandyard.kit.ids import resource_id
from sandyard.platform.access.guard import RequestRate
from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.apply import apply_all
from sandyard.platform.entities.service import OwnedEntities
from sandyard.platform.images import model
from sandyard.platform.images.errors import (
    ImageNotFoundError,
    ImagesBudgetError,
    ImagesUnavailableError,
)
from sandyard.platform.images.model import Image, ImageStatus, ImageUse
from sandyard.platform.images.ports import ImageRoots, ImageStore
from sandyard.platform.quotas.model import CountQuota, ResourceKind
from sandyard.platform.quotas.storage import StorageQuota
from sandyard.platform.sandboxes.errors import QuotaExceededError
from sandyard.runtime.images.library import ImageLibrary, Progress, StoredImage
from sandyard.runtime.images.model import Credentials, Reference
from sandyard.runtime.store.archives import ArchiveFolder

logger = logging.getLogger(__name__)

_AT_ONCE = 4
_NOTED_SEC = 1.0
_LONGEST_SEC = 3600
_TURN_SEC = 15.0
_ACTOR = actor("system", "images")
Store = Callable[[Progress], Awaitable[StoredImage]]


class Images(OwnedEntities[Image, ImageStore]):
    id_prefix = "img"
    not_found = ImageNotFoundError

    def __init__(
        self,
        store: ImageStore,
        library: ImageLibrary,
        roots: ImageRoots | None,
        uploads: ArchiveFolder,
        storage: StorageQuota,
        megabytes: RequestRate,
        *,
        clock: Clock,
        per_account: int,
        most_bytes: int,
    ) -> None:
        """`roots` unpacks them on this node; None if sandboxes do not run from images. `uploads`
        are archives that are being imported. `megabytes` limits what each account has stored, as
        what no image has stays until the job removes it."""
        super().__init__(store, clock=clock)
        self._library = library
        self._roots = roots
        self._uploads = uploads
        self._storage = storage
        self._per_account = per_account
        self._most_bytes = most_bytes
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._of_account = KeyedLocks()
        self._uploads_of = KeyedLocks()
        self._megabytes = megabytes
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._turn_sec = _TURN_SEC

    async def pull(
        self, principal: Principal, reference: str, credentials: Credentials | None
    ) -> Image:
        """Begin to pull it. ImageRefusedError for an invalid name, ImagesLimitError,
        QuotaExceededError, ImagesUnavailableError."""
        where = Reference.of(reference)
        image = await self._request(principal, str(where))

        async def store(progress: Progress) -> StoredImage:
            own = await self._store.ready_of(principal.account_id)
            return await self._library.pull(
                image.image_id,
                where,
                credentials,
                owned={part for each in own for part in each.parts or ()},
                most_bytes=await self._left_bytes(principal),
                progress=progress,
                charge=partial(self._charge, principal.account_id),
            )

        if image.status is ImageStatus.PULLING and image.image_id not in self._under_way:
            self._begin(image, store)
        return image

    async def import_archive(
        self, principal: Principal, name: str, content: AsyncIterator[bytes]
    ) -> Image:
        """Store an uploaded archive, and begin to read it. Raises as `pull`, and
        BodyTooLargeError."""
        self._require_here()
        upload = f"{principal.account_id}-{resource_id('upl')}"
        try:
            async with self._uploads_of.of(principal.account_id):  # the next one counts this one
                most_bytes = await self._left_bytes(principal)
                await self._uploads.write(upload, content, most_bytes=most_bytes)
            path = await self._uploads.require(upload)
            image = await self._request(principal, name)
        except BaseException:
            await asyncio.shield(self._uploads.delete(upload))
            raise

        async def store(progress: Progress) -> StoredImage:
            try:
                return await self._library.add(
                    image.image_id,
                    path,
                    most_bytes=most_bytes,
                    progress=progress,
                    charge=partial(self._charge, principal.account_id),
                )
            finally:
                await self._uploads.delete(upload)

        self._begin(image, store)
        return image

    async def until_done(self, image: Image) -> Image:
        """The image when it is ready or has failed."""
        if (task := self._under_way.get(image.image_id)) is not None:
            await asyncio.wait({task})
        return await self.get(image.owner_account_id, image.image_id)

    async def find_same(self, image: Image) -> Image | None:
        """Another image of the account of the same name and content."""
        ready = await self._store.ready_of(image.owner_account_id)
        same = (image.digest, image.reference)
        others = (each for each in ready if each.image_id != image.image_id)
        return next((each for each in others if (each.digest, each.reference) == same), None)

    async def require_usable(self, account_id: str, image_id: str) -> None:
        """Return if the account's templates and sandboxes may have it. ImageNotFoundError,
        ImageNotReadyError."""
        image = await self._store.find_any(image_id)
        if image is None or not await self._store.is_usable(account_id, image_id):
            raise ImageNotFoundError
        model.require_ready(image)

    async def delete(self, principal: Principal, image_id: str) -> None:
        """ImageInUseError. A pull that is under way is ended."""
        cause = self._cause(principal)

        async def decide() -> Transition[Image]:
            image = await self.get(principal.account_id, image_id)
            use = await self._store.read_fact(ImageUse(image_id))
            return model.delete_image(image, use, cause=cause)

        async with self._locks.of(image_id):
            await self._apply(decide)
        if (task := self._under_way.get(image_id)) is not None:
            task.cancel()

    async def bytes_of(self, account_id: str) -> int:
        """What its images have in the store."""
        return sum(each.size_bytes or 0 for each in await self._store.ready_of(account_id))

    async def close(self) -> None:
        """What is under way has failed."""
        for task in list(self._under_way.values()):
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    def _require_here(self) -> ImageRoots:
        if self._roots is None:
            raise ImagesUnavailableError
        return self._roots

    async def _charge(self, account_id: str, size_bytes: int) -> None:
        try:
            await self._megabytes.count(account_id, 1 + (size_bytes >> 20))
        except RateLimitedError as error:
            raise ImagesBudgetError(retry_after=error.retry_after) from error

    async def _left_bytes(self, principal: Principal) -> int:
        """QuotaExceededError if nothing is left."""
        await self._storage.require(principal.account_id, 1, error=QuotaExceededError)
        return min(self._most_bytes, await self._storage.left_bytes(principal.account_id))

    async def _request(self, principal: Principal, reference: str) -> Image:
        self._require_here()
        cause = self._cause(principal)
        await self._left_bytes(principal)
        quota = CountQuota(ResourceKind.IMAGES, principal.account_id, self._per_account)

        async def decide(image_id: str) -> Transition[Image]:
            return model.request_image(
                image_id=image_id,
                account_id=principal.account_id,
                reference=reference,
                quota=await self._store.read_fact(quota),
                cause=cause,
            )

        return await self._create(principal, decide)

    def _begin(self, image: Image, store: Store) -> None:
        task = asyncio.create_task(self._run(image, store))
        self._under_way[image.image_id] = task
        task.add_done_callback(lambda _: self._under_way.pop(image.image_id, None))

    async def _run(self, image: Image, store: Store) -> None:
        """One at a time of each account. Its outcome is recorded."""
        done: list[tuple[int, int]] = [(0, 0)]
        beating = asyncio.create_task(self._note(image.image_id, done))
        reason = "The server was stopped before it was complete. Pull it again."
        try:
            async with (
                self._of_account.of(image.owner_account_id),
                self._turn(),
                asyncio.timeout(_LONGEST_SEC),
            ):
                stored = await store(lambda *at: done.__setitem__(0, at))
                unpacked = await self._require_here().require(image.image_id)
            await self._record(
                image,
                lambda now, cause: model.record_ready(
                    now, stored, unpacked_bytes=unpacked, cause=cause
                ),
            )
            reason = ""
        except TimeoutError:
            reason = f"It was not complete within {_LONGEST_SEC} s."
        except SandyardError as error:
            reason = error.message
            if isinstance(error, UnavailableError):
                logger.warning("a pull failed: %s", error.reason, extra={"action": "images"})
        except Exception:
            logger.exception("a pull failed", extra={"action": "images"})
            reason = "It failed inside the server."
        finally:
            beating.cancel()
            if reason:
                await asyncio.shield(self._fail(image, reason))

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Few begin at once. What takes long goes on beside the next ones, so that slow registries
        hold up nobody else."""
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        ending = loop.call_later(self._turn_sec, self._slots.release)
        try:
            yield
        finally:
            if ending.when() > loop.time():
                ending.cancel()
                self._slots.release()

    async def _fail(self, image: Image, reason: str) -> None:
        with suppress(SandyardError):  # then the job records it
            await self._record(
                image, lambda now, cause: model.record_failure(now, reason, cause=cause)
            )

    async def _record(self, image: Image, decide: Callable[..., Transition[Image] | None]) -> None:
        async def decided() -> list[Transition[Any]]:
            found = await self._store.find_any(image.image_id)
            made = found and decide(found, Cause.by(_ACTOR, self._clock))
            return [made] if made else []

        await apply_all(self._store, decided)

    async def _note(self, image_id: str, done: list[tuple[int, int]]) -> None:
        """Report its progress, and that this process is still there."""
        while True:
            await asyncio.sleep(_NOTED_SEC)
            pulled, total = done[0]
            at = utc_time(self._clock.now())
            with suppress(UnavailableError):
                await self._store.note_progress(
                    image_id, pulled_bytes=pulled, total_bytes=total, at=at
                )
