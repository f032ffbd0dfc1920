"""Malicious layers: what is refused, what is left out, and how much it may cost."""

import io
import os
import tarfile
import tracemalloc
from itertools import count
from pathlib import Path

import pytest

from sandyard.runtime.errors import DiskFullError
from sandyard.runtime.images import unpacking
from sandyard.runtime.images.archives import opened
from sandyard.runtime.images.errors import ImageRefusedError
from sandyard.runtime.images.unpacking import Unpacker
from tests.support.runtime.root_file_systems import gzipped, link, member, tar


def unpack(folder: Path, *layers: bytes, most_bytes: int = 1 << 20) -> Path:
    root = folder / "root"
    root.mkdir(exist_ok=True)
    unpacker = Unpacker(root, most_bytes=most_bytes)
    for layer in layers:
        unpacker.unpack(io.BytesIO(layer))
    return root


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_are_refused_and_never_made(tmp_path: Path, kind: bytes) -> None:
    root = unpack(tmp_path, tar(member("dev/x", type=kind), member("dev/pts")))
    assert [each.name for each in (root / "dev").iterdir()] == ["pts"]
    for name in ("x", "tmp/x", "var/dev/x"):
        with pytest.raises(ImageRefusedError, match="device"):
            unpack(tmp_path, tar(member(name, type=kind)))


def test_privileges_and_attributes_are_not_kept(tmp_path: Path) -> None:
    attributes = {"SCHILY.xattr.security.capability": "x", "SCHILY.xattr.user.a": "b"}
    root = unpack(tmp_path, tar(member("su", b"x", mode=0o6755, pax_headers=attributes)))
    assert (root / "su").stat().st_mode & 0o7777 == 0o755
    assert os.listxattr(root / "su") == []


def test_owners_are_kept_within_the_ids_of_a_sandbox(tmp_path: Path) -> None:
    layer = tar(member("a", b"", uid=101, gid=33), link("b", "a"), member("c", uid=1 << 20))
    root = unpack(tmp_path, layer)
    assert [(root / name).lstat().st_uid for name in "abc"] == [101, 0, 65_535]
    assert (root / "a").stat().st_gid == 33


def test_a_bomb_is_ended_at_its_limit(tmp_path: Path) -> None:
    """A thousandth of its size is read."""
    bomb = tmp_path / "bomb"
    bomb.write_bytes(gzipped(tar(member("zeros", bytes(8 << 20)))))
    assert bomb.stat().st_size < 100_000
    with opened(bomb) as content, pytest.raises(ImageRefusedError, match="too large"):
        Unpacker(tmp_path, most_bytes=1 << 20).unpack(content)
    assert not (tmp_path / "zeros").exists()


def test_what_has_a_size_without_a_content_counts_too(tmp_path: Path) -> None:
    strange = member("x", b"", type=b"Z", size=2 << 20)[0].tobuf()
    with pytest.raises(ImageRefusedError, match="too large"):
        unpack(tmp_path, strange + bytes(2 << 20))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_headers_are_not_read_into_memory_at_any_size(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 1 << 30
    with pytest.raises(ImageRefusedError, match="too long"):
        unpack(tmp_path, header.tobuf(tarfile.USTAR_FORMAT) + bytes(1024), most_bytes=1 << 40)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MOST_ENTRIES", 10)
    with pytest.raises(ImageRefusedError, match="too many"):
        unpack(tmp_path, tar(*(member(f"f{number}", b"") for number in range(11))))


@pytest.mark.parametrize(
    "layer",
    [
        tar(member("a", b"x"), member("a/../b", b"x")),
        tar(member("x" * 300, b"")),
        tar(member("a", b"x" * 2000))[:1500],
        b"\x1f\x8b broken",
        bytes(100),
    ],
)
def test_what_can_t_be_unpacked_is_refused(tmp_path: Path, layer: bytes) -> None:
    with pytest.raises(ImageRefusedError):
        unpack(tmp_path, layer)


def test_a_full_disk_is_no_fault_of_the_image(tmp_path: Path) -> None:
    def full() -> None:
        raise DiskFullError(free_bytes=1, reserve_bytes=2)

    with pytest.raises(DiskFullError):
        Unpacker(tmp_path, require_space=full).unpack(io.BytesIO(tar(member("a", b"x"))))


def test_the_disk_is_looked_at_inside_a_large_file(tmp_path: Path) -> None:
    calls = count()

    def full_later() -> None:
        if next(calls) > 2:
            raise DiskFullError(free_bytes=1, reserve_bytes=2)

    layer = io.BytesIO(tar(member("large", bytes(16 << 20))))
    with pytest.raises(DiskFullError):
        Unpacker(tmp_path, require_space=full_later).unpack(layer)
    assert (tmp_path / "large").stat().st_size <= 4 << 20


def test_folders_that_only_names_have_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "MOST_ENTRIES", 100)
    with pytest.raises(ImageRefusedError, match="too many"):
        unpack(tmp_path, tar(member("/".join("a" * 200), b"")))


def test_a_chain_of_headers_is_small_in_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 100 << 10
    content = b"%d comment=" % header.size
    content = content.ljust(header.size - 1, b"x") + b"\n"
    piece = header.tobuf(tarfile.USTAR_FORMAT) + content.ljust(-(-len(content) // 512) * 512, b"\0")
    tracemalloc.start()
    with pytest.raises(ImageRefusedError):
        unpack(tmp_path, piece * 1000)
    assert tracemalloc.get_traced_memory()[1] < 300 << 20  # with a hundred for the archive itself
    tracemalloc.stop()
