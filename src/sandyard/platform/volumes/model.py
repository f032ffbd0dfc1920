"""Volumes and the decisions about them, without any I/O.

A volume is mounted exactly while a sandbox that names it starts or runs. So there is no record of a
mount that could be left over: the state of the sandbox is the record.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, ClassVar, Protocol, TypeVar

from sandyard.kit.changes.transitions import Cause, Transition, changed, created
from sandyard.kit.node import require_here
from sandyard.kit.patterns import pattern
from sandyard.platform.quotas.model import CountQuota
from sandyard.platform.usage.model import Consumer, PriceList, count_stored
from sandyard.platform.volumes import errors
from sandyard.runtime.model import Mount


@dataclass(frozen=True, slots=True)
class Volume:
    SUBJECT: ClassVar[str] = "volume_id"
    OWNER: ClassVar[str | None] = "owner_account_id"

    volume_id: str
    owner_account_id: str
    project_id: str | None
    """The project whose sandboxes alone may mount it; None if all of the account may."""
    name: str
    size_bytes: int
    """What it may store, and what it is billed for."""
    node: str
    """The node that has its files."""
    created_at: datetime
    updated_at: datetime
    is_read_only: bool = False
    """Whether it never changes: a snapshot."""
    copied_from: str | None = None
    storage_counted_until: datetime | None = None
    """The time up to which its storage is on usages."""
    deleted_at: datetime | None = None
    sequence: int = 0

    @property
    def consumer(self) -> Consumer:
        return Consumer(None, self.owner_account_id, self.project_id)


@dataclass(frozen=True, slots=True)
class NewVolume:
    name: str
    size_bytes: int
    project_id: str | None = None
    copy_of: str | None = None
    """The id of the volume whose files and size it gets."""
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class VolumeFilter:
    project_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """A sandbox that is starting or running, and has the volume."""

    name: str
    sandbox_id: str
    is_read_only: bool


@dataclass(frozen=True, slots=True)
class VolumeUse:
    """A fact: which of these names are volumes of the account, and who has them mounted."""

    account_id: str
    names: tuple[str, ...]
    volumes: tuple[Volume, ...] = ()
    holders: tuple[Holder, ...] = ()

    def holders_of(self, volume: Volume) -> Sequence[Holder]:
        return [each for each in self.holders if each.name == volume.name]

    def require_unmounted(self) -> None:
        """VolumeMountedError."""
        if self.holders:
            raise mounted_error(self.holders[0])


VOLUME_NAME = pattern(
    r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$", "must be letters, digits, - and _, and begin with no sign"
)
MOUNT_POINT = pattern(r"^(/[^/\x00-\x1f\x7f]{1,255}){1,16}$", "must be an absolute path")
_OF_THE_SYSTEM = re.compile(
    r"/(bin|boot|dev|etc|lib\w*|proc|run|sbin|sys|tmp|usr|var/lib/dpkg)(/.*)?"
)
_WHOLE = frozenset({"/workspace", "/home", "/home/user", "/root", "/var", "/var/lib"})


class Mountable(Protocol):
    """What a request says about one volume of a sandbox."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...


M = TypeVar("M", bound=Mountable)


def require_mount_point(path: str) -> str:
    """ValueError if a volume can't be there: in the system's folders, or in place of what a sandbox
    needs."""
    is_taken = path in _WHOLE or _OF_THE_SYSTEM.fullmatch(path)
    if is_taken or {".", ".."} & {*path.split("/")}:
        raise ValueError("must have no `.` or `..`, and be in no folder of the system")
    return path


def require_apart(mounts: list[M]) -> list[M]:
    """ValueError if they can't all be mounted."""
    paths = sorted(f"{each.path}/" for each in mounts)
    if any(below.startswith(path) for path, below in pairwise(paths)):
        raise ValueError("two volumes have the same path, or one is inside another")
    if len({each.name for each in mounts}) < len(mounts):
        raise ValueError("a volume is named twice")
    return mounts


Wanted = Sequence[Mapping[str, Any]]
"""The volumes of a sandbox: `name`, `path` and `read_only` of each."""


def names_of(wanted: Wanted) -> tuple[str, ...]:
    return tuple(each["name"] for each in wanted)


def mounts_of(
    wanted: Wanted, use: VolumeUse, *, project_id: str | None, node: str, sandbox_id: str = ""
) -> tuple[Mount, ...]:
    """What a sandbox of this project mounts on this node. VolumeNotUsableError,
    VolumeReadOnlyError, VolumeElsewhereError; VolumeMountedError if another sandbox excludes it."""
    by_name = {each.name: each for each in use.volumes}
    mounts = []
    for each in wanted:
        volume = by_name.get(each["name"])
        if volume is None or volume.project_id not in (None, project_id):
            raise errors.VolumeNotUsableError(details={"volume": each["name"]})
        if volume.is_read_only and not each["read_only"]:
            raise errors.VolumeReadOnlyError(details={"volume": volume.name})
        require_here(volume.node, node=node, error=errors.VolumeElsewhereError)
        for holder in use.holders_of(volume):
            is_shared = holder.is_read_only and each["read_only"]
            if sandbox_id and holder.sandbox_id != sandbox_id and not is_shared:
                raise mounted_error(holder)
        mounts.append(Mount(volume.volume_id, each["path"], each["read_only"]))
    return tuple(mounts)


def create_volume(
    new: NewVolume,
    *,
    volume_id: str,
    account_id: str,
    node: str,
    quota: CountQuota,
    project: Any,
    cause: Cause,
) -> Transition[Volume]:
    """`project` is the fact that the volume's project can be used. VolumesLimitError."""
    quota.require(errors.VolumesLimitError)
    volume = Volume(
        volume_id=volume_id,
        owner_account_id=account_id,
        project_id=new.project_id,
        name=new.name,
        size_bytes=new.size_bytes,
        node=node,
        created_at=cause.at,
        updated_at=cause.at,
        is_read_only=new.is_read_only,
        copied_from=new.copy_of,
        storage_counted_until=cause.at,
    )
    preconditions = (quota,) if project is None else (quota, project)
    return created(volume, "volume.created", cause, preconditions=preconditions)


def resize_volume(
    volume: Volume,
    use: VolumeUse,
    *,
    size_bytes: int,
    usage_id: str,
    prices: PriceList,
    cause: Cause,
) -> Sequence[Transition[Any]]:
    """What it has stored so far is billed by its old size. VolumeMountedError."""
    use.require_unmounted()
    counted = count_volume(
        volume, until=cause.at, usage_id=usage_id, prices=prices, cause=cause
    ) or (None,)
    [_, *usage] = counted
    resized = replace(
        volume, size_bytes=size_bytes, updated_at=cause.at, storage_counted_until=cause.at
    )
    return changed(volume, resized, "volume.resized", cause, preconditions=(use,)), *usage


def count_volume(
    volume: Volume, *, until: datetime, usage_id: str, prices: PriceList, cause: Cause
) -> tuple[Transition[Any], ...] | None:
    """Its storage up to then, or until it was deleted, becomes a usage; None if it is already
    counted."""
    return count_stored(
        volume,
        volume.consumer,
        "volume.storage_counted",
        size_bytes=volume.size_bytes,
        until=until,
        usage_id=usage_id,
        prices=prices,
        cause=cause,
    )


def delete_volume(volume: Volume, use: VolumeUse, *, cause: Cause) -> Transition[Volume]:
    """VolumeMountedError."""
    use.require_unmounted()
    return changed(volume, _deleted(volume, cause), "volume.deleted", cause, preconditions=(use,))


def remove_with_account(volume: Volume, cause: Cause) -> Transition[Volume]:
    """Of a deleted account, whose sandboxes are recycled."""
    return changed(volume, _deleted(volume, cause), "volume.deleted", cause)


def _deleted(volume: Volume, cause: Cause) -> Volume:
    return replace(volume, deleted_at=cause.at, updated_at=cause.at)


def mounted_error(holder: Holder) -> errors.VolumeMountedError:
    default = errors.VolumeMountedError().message
    return errors.VolumeMountedError(
        f"{default} It is {holder.sandbox_id}.",
        details={"volume": holder.name, "sandbox_id": holder.sandbox_id},
    )
