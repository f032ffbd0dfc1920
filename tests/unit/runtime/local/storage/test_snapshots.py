"""A snapshot is there as a whole or not at all, whoever is killed while it is packed."""

import asyncio
import gzip
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandyard.runtime.local.jail.isolation import NoIsolation, WrappedCommand
from sandyard.runtime.local.storage import snapshots
from sandyard.runtime.model import Snapshot


@pytest.fixture
def workspace(tmp_path: Path) -> NoIsolation:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "large").write_bytes(os.urandom(8 << 20))
    return NoIsolation(folder)


def names_in(snapshot: Path) -> list[str]:
    content = snapshot.read_bytes()
    if shutil.which("zstd") and content[:4] == b"\x28\xb5\x2f\xfd":
        content = subprocess.run(["zstd", "-dc"], input=content, capture_output=True).stdout
    else:
        content = gzip.decompress(content)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return sorted(archive.getnames())


async def taken(isolation: NoIsolation, to: Path, *, disk_bytes: int = 1 << 40) -> Snapshot:
    return await snapshots.take(
        isolation, to, limit_bytes=1 << 30, disk_bytes=disk_bytes, timeout_sec=60
    )


@pytest.mark.parametrize("disk_bytes", [-1, 0, 4 << 20])
async def test_a_snapshot_that_would_use_the_reserve_of_the_disk_is_not_taken(
    workspace: NoIsolation, tmp_path: Path, disk_bytes: int
) -> None:
    to = tmp_path / "one.snapshot"
    with pytest.raises(snapshots.SnapshotFailedError, match="disk is nearly full"):
        await taken(workspace, to, disk_bytes=disk_bytes)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["workspace"]


@dataclass(frozen=True)
class KilledIsolation(NoIsolation):
    """Its commands are killed while they write, as long as `kills` has entries."""

    kills: list[None]

    def wrap(self, command: Sequence[str], **options: Any) -> WrappedCommand:
        if self.kills:
            self.kills.pop()
            command = ("/bin/sh", "-c", "head -c 1M /dev/zero; kill -KILL $$")
        return NoIsolation.wrap(self, command, **options)


async def test_a_snapshot_whose_packing_is_killed_once_is_packed_again(
    workspace: NoIsolation, tmp_path: Path
) -> None:
    to = tmp_path / "one.snapshot"
    isolation = KilledIsolation(workspace.workspace, kills=[None])
    assert (await taken(isolation, to)).size_bytes > 8 << 20
    assert names_in(to) == [".", "./large"]


async def test_no_snapshot_is_left_if_its_packing_is_killed_twice(
    workspace: NoIsolation, tmp_path: Path
) -> None:
    """A truncated archive could be taken for a whole one."""
    isolation = KilledIsolation(workspace.workspace, kills=[None, None])
    with pytest.raises(snapshots.SnapshotFailedError):
        await taken(isolation, tmp_path / "one.snapshot")
    assert [path.name for path in tmp_path.iterdir()] == ["workspace"]


class UnusableIsolation(NoIsolation):
    """Ends as bubblewrap does when it can't mount: with 1, before the command was started."""

    def wrap(self, *_command: object, **_options: object) -> WrappedCommand:
        script = ("/bin/sh", "-c", "echo no mount >&2; exit 1")
        return NoIsolation.wrap(self, script)


async def test_no_snapshot_is_left_without_isolation(
    workspace: NoIsolation, tmp_path: Path
) -> None:
    unusable = UnusableIsolation(workspace.workspace)
    with pytest.raises(snapshots.SnapshotFailedError, match="no mount"):
        await taken(unusable, tmp_path / "one.snapshot")
    assert [path.name for path in tmp_path.iterdir()] == ["workspace"]


async def test_files_that_change_while_they_are_read_are_packed(
    workspace: NoIsolation, tmp_path: Path
) -> None:
    """tar ends with 1 then; what was there is in the archive."""
    to = tmp_path / "one.snapshot"
    growing = workspace.workspace / "growing"
    script = f"while :; do head -c 1M /dev/urandom >> {growing}; done"
    writer = await asyncio.create_subprocess_exec("/bin/sh", "-c", script)
    try:
        await taken(workspace, to)
    finally:
        writer.kill()
        await writer.wait()
    assert "./large" in names_in(to)
