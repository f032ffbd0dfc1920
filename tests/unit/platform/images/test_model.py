"""Every decision about images, at its edges."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from sandyard.kit.changes.transitions import Cause
from sandyard.platform.images import errors, model
from sandyard.platform.images.model import Image, ImageStatus, ImageUse
from sandyard.platform.quotas.model import CountQuota, ResourceKind
from sandyard.platform.usage.model import PriceList
from sandyard.runtime.images.library import StoredImage
from sandyard.runtime.images.model import ImageConfig, Manifest, Part

CAUSE = Cause("account:111111111111", 1_800_000_000_000)
HOUR = timedelta(hours=1)
LATER = replace(CAUSE, at_ms=CAUSE.at_ms + 3_600_000)
QUOTA = CountQuota(ResourceKind.IMAGES, "1" * 12, limit=2)
PRICES = PriceList(vcpu=Decimal(0), memory_gb=Decimal(0), storage_gb=Decimal(1))
LAYER = Part("b" * 64, 1 << 30)
STORED = StoredImage(
    "sha256:" + "d" * 64,
    Manifest(Part("a" * 64, 0), [LAYER, LAYER]),
    ImageConfig(["/app"], "web", "/srv", [80]),
)
USE = ImageUse("img-1")


def requested() -> Image:
    made = model.request_image(
        image_id="img-1", account_id="1" * 12, reference="x", quota=QUOTA, cause=CAUSE
    )
    assert (made.events[0].kind, made.preconditions) == ("image.requested", (QUOTA,))
    return made.result


def ready() -> Image:
    made = model.record_ready(requested(), STORED, unpacked_bytes=5, cause=CAUSE)
    assert made is not None
    assert made.events[0].kind == "image.ready"
    return made.result


def test_a_request_keeps_to_the_quota() -> None:
    with pytest.raises(errors.ImagesLimitError):
        model.request_image(
            image_id="img-1",
            account_id="1" * 12,
            reference="x",
            quota=QUOTA.with_count(2),
            cause=CAUSE,
        )


def test_a_ready_image_knows_its_parts_once_and_what_it_runs() -> None:
    image = ready()
    assert (image.status, image.digest) == (ImageStatus.READY, STORED.digest)
    assert (image.parts, image.size_bytes) == (["a" * 64, "b" * 64], 1 << 30)
    assert (image.command, image.user_name, image.ports) == (["/app"], "web", [80])
    model.require_ready(image)
    with pytest.raises(errors.ImageNotReadyError):
        model.require_ready(requested())


def test_what_comes_late_changes_nothing() -> None:
    """A pull that was given up or deleted meanwhile, or is already recorded."""
    failed = model.record_failure(requested(), "away", cause=CAUSE)
    assert failed is not None
    assert (failed.events[0].kind, failed.result.reason) == ("image.failed", "away")
    deleted = model.delete_image(requested(), USE, cause=CAUSE).result
    for image in (failed.result, deleted, ready()):
        assert model.record_ready(image, STORED, unpacked_bytes=5, cause=LATER) is None
        assert model.record_failure(image, "x", cause=LATER) is None
        assert model.give_up(image, unseen_since=LATER.at, cause=LATER) is None


def test_a_pull_is_given_up_once_its_process_is_silent() -> None:
    image = requested()
    assert model.give_up(image, unseen_since=CAUSE.at, cause=LATER) is None
    gone = model.give_up(image, unseen_since=CAUSE.at + timedelta(milliseconds=1), cause=LATER)
    assert gone is not None
    assert gone.result.status is ImageStatus.FAILED


def test_one_in_use_stays_unless_its_account_goes() -> None:
    with pytest.raises(errors.ImageInUseError):
        model.delete_image(ready(), replace(USE, is_used=True), cause=LATER)
    deleted = model.delete_image(ready(), USE, cause=LATER)
    assert (deleted.events[0].kind, deleted.preconditions) == ("image.deleted", (USE,))
    assert deleted.result.deleted_at == LATER.at
    assert model.remove_with_account(ready(), LATER).result.deleted_at == LATER.at


def test_its_storage_is_counted_until_it_is_deleted_and_once() -> None:
    image = ready()

    def count(image: Image, hours: int) -> model.Transitions | None:
        until = CAUSE.at + hours * HOUR
        return model.count_image(image, until=until, usage_id="usg-1", prices=PRICES, cause=LATER)

    assert count(requested(), 2) is None
    assert count(image, 0) is None
    counted, usage = count(image, 2) or ()
    assert usage.result.sandbox_id is None
    assert (usage.result.storage_gb, usage.result.cost) == (1.0, Decimal("2.000000"))
    assert count(counted.result, 2) is None
    deleted = model.delete_image(image, USE, cause=LATER).result
    last, usage = count(deleted, 9) or ()
    assert usage.result.cost == Decimal("1.000000")
    assert count(last.result, 10) is None
