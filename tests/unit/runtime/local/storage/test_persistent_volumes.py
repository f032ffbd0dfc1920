"""Volumes of a server that is not root: folders, whose size is counted."""

import fcntl
import os
from pathlib import Path

import pytest

from sandyard.runtime.errors import VolumeBusyError, VolumeFilesMissingError
from sandyard.runtime.local.storage.persistent_volumes import PersistentVolume, stored_volumes


def made(folder: Path, name: str = "vol-1") -> PersistentVolume:
    volume = PersistentVolume(folder, name)
    volume.make(1 << 20, blanks=None, now=0)
    return volume


def held(volume: PersistentVolume) -> list[int]:
    """Descriptors of this process that hold locks on it, which a machine has until it ends."""
    return [
        int(each.name)
        for each in Path("/proc/self/fd").iterdir()
        if each.is_symlink() and each.resolve() == volume.path / "files"
    ]


def test_one_writer_or_many_readers(tmp_path: Path) -> None:
    volume = made(tmp_path)
    found = volume.bind(Path(), None, None, writes=True)
    assert (found.source, found.limit_bytes) == (volume.path / "files", 1 << 20)
    assert found.is_counted
    for refused in (
        volume.remove,
        lambda: volume.resize(1),
        lambda: PersistentVolume(tmp_path, "vol-2").copy(volume),
    ):
        with pytest.raises(VolumeBusyError):
            refused()
    for each in held(volume):
        os.close(each)
    for _ in range(2):
        volume.bind(Path(), None, None, writes=False)
    PersistentVolume(tmp_path, "vol-2").copy(volume)
    with pytest.raises(VolumeBusyError), volume.locked(fcntl.LOCK_EX):
        pass
    for each in held(volume):
        os.close(each)
    assert set(stored_volumes(tmp_path)) == {"vol-1", "vol-2"}


def test_it_is_copied_resized_and_removed_with_what_it_has(tmp_path: Path) -> None:
    volume = made(tmp_path)
    (volume.path / "files" / "kept").write_text("kept")
    made(tmp_path)
    copy = PersistentVolume(tmp_path, "vol-2")
    copy.copy(volume)
    copy.resize(2 << 20)
    volume.remove()
    volume.remove()
    assert (copy.path / "files" / "kept").read_text() == "kept"
    assert copy.bind(Path(), None, None, writes=False).limit_bytes == 2 << 20
    with pytest.raises(VolumeFilesMissingError):
        volume.bind(Path(), None, None, writes=True)
