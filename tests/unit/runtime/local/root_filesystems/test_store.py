"""Importing root file systems: what gets in, what is refused, and that nothing gets out."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from sandyard.runtime.errors import EnvironmentMissingError
from sandyard.runtime.images import unpacking
from sandyard.runtime.images.errors import ImageRefusedError
from sandyard.runtime.images.unpacking import Unpacker
from sandyard.runtime.local.root_filesystems.store import RootFilesystem, RootFilesystems
from tests.support.runtime.root_file_systems import (
    gzipped,
    hard_link,
    link,
    member,
    oci_layout,
    tar,
)

SHELL = member("bin/sh", b"a shell")


@pytest.fixture
def environments(tmp_path: Path) -> RootFilesystems:
    return RootFilesystems(tmp_path / "runtime")


def add(
    environments: RootFilesystems, folder: Path, *members: tuple[tarfile.TarInfo, bytes]
) -> Path:
    """Import this as a tar; where its root is."""
    file = folder / "root.tar"
    file.write_bytes(tar(SHELL, *members))
    return environments.root_of(environments.add("debian", file, now=1.0))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_tar_is_imported_listed_replaced_and_removed(
    environments: RootFilesystems, tmp_path: Path
) -> None:
    root = add(environments, tmp_path, member("etc/motd", b"one", mode=0o4644))
    assert (root / "etc/motd").read_bytes() == b"one"
    assert (root / "etc/motd").stat().st_mode & 0o7777 == 0o644
    assert (root / "workspace").is_dir()
    assert (root / "etc/pip.conf").is_file()
    [listed] = environments.list()
    assert isinstance(listed, RootFilesystem)
    assert listed.name == "debian"
    newer = add(environments, tmp_path, member("etc/motd", b"two"))
    assert newer != root
    assert not root.exists()
    environments.remove("debian")
    assert environments.list() == []
    assert not newer.exists()
    with pytest.raises(EnvironmentMissingError):
        environments.remove("debian")


@pytest.mark.parametrize("pack", [bytes, gzipped])
def test_layers_are_put_over_one_another(
    environments: RootFilesystems, tmp_path: Path, pack: type[bytes]
) -> None:
    first = tar(
        SHELL,
        *(member("data/gone", b"1"), member("data/kept", b"1"), member("old/a", b"1")),
        *(member("old/sub/b", b"1"), member("usr/lib/x", b"1"), link("lib", "usr/lib")),
    )
    second = tar(
        *(member("data/.wh.gone", b""), member("old/new", b"2"), member("old/.wh..wh..opq", b"")),
        *(member("lib/y", b"2"), hard_link("data/same", "lib/y"), member("data/kept", b"2")),
    )
    layout = oci_layout(tmp_path / "oci", pack(first), pack(second), env=["PATH=/opt/bin", "A=b=c"])
    made = environments.add("image", layout, now=1.0)
    root = environments.root_of(made)
    assert names_in(root / "data") == ["kept", "same"]
    assert (root / "data/kept").read_bytes() == b"2"
    assert names_in(root / "old") == ["new"]
    assert names_in(root / "usr/lib") == ["x", "y"]
    assert (root / "data/same").read_bytes() == b"2"
    assert made.environment == {"PATH": "/opt/bin", "A": "b=c"}


def test_a_layout_in_a_tar_is_a_layout(environments: RootFilesystems, tmp_path: Path) -> None:
    layout = oci_layout(tmp_path / "oci", tar(SHELL, member("etc/motd", b"x")))
    packed = tmp_path / "image.tar"
    subprocess.run(["tar", "-C", str(layout), "-cf", str(packed), "."], check=True)
    root = environments.root_of(environments.add("image", packed, now=1.0))
    assert (root / "etc/motd").read_bytes() == b"x"


def test_zstd_is_unpacked(environments: RootFilesystems, tmp_path: Path) -> None:
    plain = tmp_path / "root.tar"
    plain.write_bytes(tar(SHELL))
    subprocess.run(["zstd", "-q", str(plain), "-o", str(tmp_path / "root.tar.zst")], check=True)
    assert environments.add("small", tmp_path / "root.tar.zst", now=1.0).name == "small"


@pytest.mark.parametrize(
    "members",
    [
        [member("../escaped", b"x")],
        [member("a/../../escaped", b"x")],
        [link("etc", "../../../../../.."), member("etc/../escaped", b"x")],
        [hard_link("passwd", "/etc/passwd")],
        [hard_link("passwd", "../../../../etc/passwd")],
        [link("a", "b"), link("b", "a"), member("a/x", b"x")],
        [member("x/.wh...", b"")],
        [member("x/.wh.", b"")],
    ],
)
def test_what_would_leave_the_root_is_refused_and_leaves_nothing(
    environments: RootFilesystems, tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    with pytest.raises(ImageRefusedError):
        add(environments, tmp_path, *members)
    assert environments.list() == []
    assert names_in(tmp_path / "runtime/environments/roots") == []
    assert not list(tmp_path.rglob("escaped"))


def test_links_to_outside_lead_to_the_inside(environments: RootFilesystems, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = add(
        environments,
        tmp_path,
        *(link("out", str(outside)), member("out/file", b"x")),
        *(link("up", "../../../.."), member("up/top", b"y")),
        *(link("etc/passwd", "/etc/shadow"), link("proc", str(outside))),
    )
    assert names_in(outside) == []
    assert (root / str(outside).lstrip("/") / "file").read_bytes() == b"x"
    assert (root / "top").read_bytes() == b"y"
    assert (root / "etc/passwd").is_file()
    assert not (root / "etc/passwd").is_symlink()
    assert not (root / "proc").is_symlink()


def test_the_devices_of_an_image_are_left_out(
    environments: RootFilesystems, tmp_path: Path
) -> None:
    root = add(
        environments,
        tmp_path,
        member("dev/mem", type=tarfile.CHRTYPE, devmajor=1, devminor=1),
        member("dev/disk", type=tarfile.BLKTYPE, devmajor=8),
        member("dev/pipe", type=tarfile.FIFOTYPE),
    )
    assert names_in(root / "dev") == []


def test_a_damaged_part_is_refused(environments: RootFilesystems, tmp_path: Path) -> None:
    layout = oci_layout(tmp_path / "oci", tar(SHELL))
    for blob in (layout / "blobs/sha256").iterdir():
        blob.write_bytes(blob.read_bytes() + b" ")
    with pytest.raises(ImageRefusedError, match="damaged"):
        environments.add("image", layout, now=1.0)


@pytest.mark.parametrize(
    "content", [b"", b"no archive at all", b"\x1f\x8bbroken", tar(member("x"))]
)
def test_what_is_no_root_is_refused(
    environments: RootFilesystems, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(ImageRefusedError):
        environments.add("debian", file, now=1.0)


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", ".a", "-", "a" * 65])
def test_a_name_is_plain(environments: RootFilesystems, tmp_path: Path, name: str) -> None:
    with pytest.raises(ImageRefusedError):
        environments.add(name, tmp_path, now=1.0)


def test_what_is_too_large_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "x.tar"
    archive.write_bytes(tar(member("a", b"x" * 100), member("b", b"x" * 100)))
    root = tmp_path / "root"
    root.mkdir()
    with archive.open("rb") as file, pytest.raises(ImageRefusedError, match="too large"):
        Unpacker(root, most_bytes=150).unpack(file)
    assert unpacking.MOST_BYTES > 1 << 30
