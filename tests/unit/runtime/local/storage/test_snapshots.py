"""A snapshot is there as a whole or not at all, whoever is killed while it is packed."""

import asyncio
import gzip
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from sandyard.runtime.local.host import processes
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


async def taken(workspace: NoIsolation, to: Path, *, kills: int) -> Snapshot:
    """Taken while so many of those that pack it are killed."""
    others = set(processes.descendants(os.getpid()))
    taking = asyncio.ensure_future(
        snapshots.take(workspace, to, limit_bytes=1 << 30, timeout_sec=60)
    )
    while kills and not taking.done():
        if packing := set(processes.descendants(os.getpid())) - others:
            processes.kill([*packing])
            kills -= 1
            while packing & set(processes.descendants(os.getpid())) and not taking.done():
                await asyncio.sleep(0.001)
        await asyncio.sleep(0)
    return await taking


async def test_one_that_is_killed_is_packed_again(workspace: NoIsolation, tmp_path: Path) -> None:
    to = tmp_path / "one.snapshot"
    assert (await taken(workspace, to, kills=1)).size_bytes > 8 << 20
    assert names_in(to) == [".", "./large"]


async def test_one_that_is_killed_again_and_again_is_none(
    workspace: NoIsolation, tmp_path: Path
) -> None:
    """An archive that broke off could be taken for a whole one."""
    to = tmp_path / "one.snapshot"
    with pytest.raises(snapshots.SnapshotFailedError):
        await taken(workspace, to, kills=2)
    assert [path.name for path in tmp_path.iterdir()] == ["workspace"]


class UnusableIsolation(NoIsolation):
    """Ends as bubblewrap does when it can't mount: with 1, before the command was started."""

    def wrap(self, *_command: object, **_options: object) -> WrappedCommand:
        script = ("/bin/sh", "-c", "echo no mount >&2; exit 1")
        return NoIsolation.wrap(self, script, environment={})


async def test_what_could_not_be_isolated_is_none(workspace: NoIsolation, tmp_path: Path) -> None:
    unusable = UnusableIsolation(workspace.workspace)
    with pytest.raises(snapshots.SnapshotFailedError, match="no mount"):
        await taken(unusable, tmp_path / "one.snapshot", kills=0)
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
        await taken(workspace, to, kills=0)
    finally:
        writer.kill()
        await writer.wait()
    assert "./large" in names_in(to)
