"""Every decision about volumes, at its edges."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from sandyard.kit.changes.transitions import Cause
from sandyard.platform.quotas.model import CountQuota, ResourceKind
from sandyard.platform.usage.model import PriceList
from sandyard.platform.volumes import errors, model
from sandyard.platform.volumes.model import Holder, NewVolume, Volume, VolumeUse
from sandyard.runtime.model import Mount

CAUSE = Cause("account:111111111111", 1_800_000_000_000)
LATER = replace(CAUSE, at_ms=CAUSE.at_ms + 3_600_000)
OWNER = "1" * 12
PRICES = PriceList(vcpu=Decimal(0), memory_gb=Decimal(0), storage_gb=Decimal(1))
QUOTA = CountQuota(ResourceKind.VOLUMES, OWNER, limit=2)


def made(**fields: Any) -> Volume:
    created = model.create_volume(
        NewVolume("models", 1 << 30),
        volume_id="vol-1",
        account_id=OWNER,
        node="here",
        quota=QUOTA,
        project=None,
        cause=CAUSE,
    )
    return replace(created.result, **fields)


def use(volume: Volume, *holders: Holder) -> VolumeUse:
    return VolumeUse(OWNER, (volume.name,), (volume,), holders)


def mounts(volume: Volume, *holders: Holder, read_only: bool = False) -> tuple[Mount, ...]:
    wanted = [{"name": "models", "path": "/data", "read_only": read_only}]
    found = use(volume, *holders)
    return model.mounts_of(wanted, found, project_id="prj-1", node="here", sandbox_id="sbx-1")


WRITER, READER = [Holder("models", "sbx-2", is_read_only=each) for each in (False, True)]


def test_one_writer_or_many_readers() -> None:
    assert mounts(made()) == (Mount("vol-1", "/data"),)
    assert mounts(made(), READER, READER, read_only=True)[0].is_read_only
    itself = replace(WRITER, sandbox_id="sbx-1")
    assert mounts(made(), itself) == mounts(made())
    for holder, read_only in ((WRITER, False), (WRITER, True), (READER, False)):
        with pytest.raises(errors.VolumeMountedError, match="sbx-2") as refused:
            mounts(made(), holder, read_only=read_only)
        assert refused.value.details == {"volume": "models", "sandbox_id": "sbx-2"}


def test_only_where_it_may_be_mounted() -> None:
    mounts(made(project_id="prj-1"))
    with pytest.raises(errors.VolumeNotUsableError):
        mounts(made(project_id="prj-2"))
    with pytest.raises(errors.VolumeNotUsableError):
        mounts(made(name="other"))
    with pytest.raises(errors.VolumeReadOnlyError):
        mounts(made(is_read_only=True))
    assert mounts(made(is_read_only=True), read_only=True)
    with pytest.raises(errors.VolumeElsewhereError):
        mounts(made(node="there"))


@pytest.mark.parametrize(
    "path", ["/data", "/mnt/a b", "/workspace/data", "/var/lib/mysql", "/lost"]
)
def test_where_it_can_be(path: str) -> None:
    assert model.require_mount_point(path) == path


@pytest.mark.parametrize("path", ["/usr", "/etc/x", "/lib64/x", "/workspace", "/a/../etc", "/proc"])
def test_where_it_can_not_be(path: str) -> None:
    with pytest.raises(ValueError, match="system"):
        model.require_mount_point(path)


def test_a_mounted_one_is_neither_resized_nor_deleted() -> None:
    volume = made()
    mounted = use(volume, READER)
    with pytest.raises(errors.VolumeMountedError):
        model.delete_volume(volume, mounted, cause=LATER)
    with pytest.raises(errors.VolumeMountedError):
        resized(volume, mounted)
    assert model.delete_volume(volume, use(volume), cause=LATER).result.deleted_at == LATER.at
    used_up = replace(QUOTA, is_used_up=True)
    with pytest.raises(errors.VolumesLimitError):
        model.create_volume(
            NewVolume("more", 1),
            volume_id="vol-2",
            account_id=OWNER,
            node="here",
            quota=used_up,
            project=None,
            cause=CAUSE,
        )


def resized(volume: Volume, found: VolumeUse, cause: Cause = LATER) -> Any:
    return model.resize_volume(
        volume, found, size_bytes=2 << 30, usage_id="usg-1", prices=PRICES, cause=cause
    )


def test_each_size_is_billed_for_as_long_as_it_was() -> None:
    change, usage = resized(made(), use(made()))
    assert (usage.result.cost, usage.result.storage_gb) == (Decimal("1.000000"), 1)
    volume = change.result
    assert (volume.size_bytes, volume.storage_counted_until) == (2 << 30, LATER.at)
    [alone] = resized(made(), use(made()), CAUSE)
    assert alone.result.storage_counted_until == CAUSE.at, "nothing to bill yet"
    deleted = model.delete_volume(volume, use(volume), cause=LATER).result
    day = timedelta(days=1)
    counted = model.count_volume(
        deleted, until=LATER.at + day, usage_id="usg-2", prices=PRICES, cause=LATER
    )
    assert counted is not None
    assert [each.result.storage_counted_until for each in counted] == [None]
