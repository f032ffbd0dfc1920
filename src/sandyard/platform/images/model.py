"""Images of accounts and the decisions about them, without any I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from sandyard.kit.changes.transitions import DATA, Cause, Transition, changed, created
from sandyard.platform.images import errors
from sandyard.platform.quotas.model import CountQuota
from sandyard.platform.usage.model import Consumer, PriceList, count_stored
from sandyard.runtime.images.library import StoredImage

Transitions = tuple[Transition[Any], ...]
_INTERRUPTED = "The server stopped before it was complete. Pull it again."


class ImageStatus(StrEnum):
    PULLING = "pulling"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Image:
    SUBJECT: ClassVar[str] = "image_id"
    OWNER: ClassVar[str | None] = "owner_account_id"

    image_id: str
    owner_account_id: str
    reference: str
    """Where it is from: its name in a registry, or the name given to an uploaded archive."""
    status: ImageStatus
    created_at: datetime
    updated_at: datetime
    reason: str | None = None
    """Why it failed."""
    digest: str | None = None
    size_bytes: int | None = None
    """Of its parts as they are stored, each once."""
    unpacked_bytes: int | None = None
    parts: Sequence[str] | None = None
    """Their SHA-256 sums."""
    command: Sequence[str] | None = None
    user_name: str | None = None
    folder: str | None = None
    ports: Sequence[int] | None = None
    storage_counted_until: datetime | None = None
    """The time up to which its storage is on usages."""
    deleted_at: datetime | None = None
    pulled_bytes: int | None = field(default=None, metadata=DATA)
    total_bytes: int | None = field(default=None, metadata=DATA)
    seen_at: datetime | None = field(default=None, metadata=DATA)
    """When the process that pulls it last reported."""
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class ImageFilter:
    status: ImageStatus | None = None
    search: str | None = None


@dataclass(frozen=True, slots=True)
class ImageUse:
    """A fact: whether a template or a sandbox of any account uses the image."""

    image_id: str
    is_used: bool = False


def request_image(
    *, image_id: str, account_id: str, reference: str, quota: CountQuota, cause: Cause
) -> Transition[Image]:
    """ImagesLimitError."""
    quota.require(errors.ImagesLimitError)
    image = Image(
        image_id=image_id,
        owner_account_id=account_id,
        reference=reference,
        status=ImageStatus.PULLING,
        created_at=cause.at,
        updated_at=cause.at,
        seen_at=cause.at,
    )
    return created(image, "image.requested", cause, preconditions=(quota,))


def record_ready(
    image: Image, stored: StoredImage, *, unpacked_bytes: int, cause: Cause
) -> Transition[Image] | None:
    """None if it was deleted or given up meanwhile."""
    if image.status is not ImageStatus.PULLING or image.deleted_at is not None:
        return None
    config = stored.config
    ready = replace(
        image,
        status=ImageStatus.READY,
        digest=stored.digest,
        size_bytes=stored.manifest.size_bytes,
        unpacked_bytes=unpacked_bytes,
        parts=[each.sha256 for each in stored.manifest.parts],
        command=list(config.command),
        user_name=config.user or None,
        folder=config.folder,
        ports=list(config.ports),
        storage_counted_until=cause.at,
        updated_at=cause.at,
    )
    return changed(image, ready, "image.ready", cause)


def record_failure(image: Image, reason: str, *, cause: Cause) -> Transition[Image] | None:
    if image.status is not ImageStatus.PULLING or image.deleted_at is not None:
        return None
    failed = replace(image, status=ImageStatus.FAILED, reason=reason, updated_at=cause.at)
    return changed(image, failed, "image.failed", cause)


def give_up(image: Image, *, unseen_since: datetime, cause: Cause) -> Transition[Image] | None:
    """Of one whose process has gone."""
    if image.seen_at is not None and image.seen_at >= unseen_since:
        return None
    return record_failure(image, _INTERRUPTED, cause=cause)


def delete_image(image: Image, use: ImageUse, *, cause: Cause) -> Transition[Image]:
    """ImageInUseError."""
    if use.is_used:
        raise errors.ImageInUseError
    deleted = replace(image, deleted_at=cause.at, updated_at=cause.at)
    return changed(image, deleted, "image.deleted", cause, preconditions=(use,))


def remove_with_account(image: Image, cause: Cause) -> Transition[Image]:
    """Of a deleted account. Sandboxes of others that use it keep what their node has of it."""
    return delete_image(image, ImageUse(image.image_id), cause=cause)


def require_ready(image: Image) -> None:
    """ImageNotReadyError."""
    if image.status is not ImageStatus.READY:
        raise errors.ImageNotReadyError


def count_image(
    image: Image, *, until: datetime, usage_id: str, prices: PriceList, cause: Cause
) -> Transitions | None:
    """Its storage up to then, or until it was deleted, becomes a usage; None if it is already
    counted."""
    return count_stored(
        image,
        Consumer(None, image.owner_account_id, None),
        "image.storage_counted",
        size_bytes=image.size_bytes or 0,
        until=until,
        usage_id=usage_id,
        prices=prices,
        cause=cause,
    )
