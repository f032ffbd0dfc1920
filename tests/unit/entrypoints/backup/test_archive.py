"""The file of a backup: whole and as its manifest says, or refused."""

import gzip
import os
import stat
import tarfile
from pathlib import Path

import pytest

from sandyard.entrypoints.backup.archive import check_archive, extract, writing
from sandyard.entrypoints.backup.errors import ArchiveInvalidError
from tests.unit.entrypoints.backup.forging import forged, member

CONTENT = os.urandom(3_000_000)


def untold(_done: int) -> None:
    pass


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive of `node` and `secrets/token`."""
    for name, content in (("node", b"n1"), ("token", CONTENT)):
        (tmp_path / name).write_bytes(content)
    os.utime(tmp_path / "token", (1_700_000_000.25, 1_700_000_000.25))
    made = tmp_path / "archive"
    with writing(made, untold) as writer:
        writer.add("node", tmp_path / "node")
        writer.add("secrets/token", tmp_path / "token")
        writer.finish({"node": "n1"})
    return made


def check(archive: Path) -> object:
    with archive.open("rb") as file:
        return check_archive(file, untold).about


def test_it_is_its_owners_alone_from_the_beginning(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with writing(tmp_path / "archive", untold) as writer:
            assert stat.S_IMODE((tmp_path / "archive").stat().st_mode) == 0o600
            writer.finish({})
    finally:
        os.umask(before)


def test_files_come_back_with_their_times_for_their_owner_alone(
    archive: Path, tmp_path: Path
) -> None:
    on_progress: list[int] = []
    with archive.open("rb") as file:
        manifest = check_archive(file, on_progress.append)
        assert manifest.about == {"node": "n1"}
        place = tmp_path / "place"
        extract(file, manifest, place, wanted=lambda name: name != "node", on_progress=untold)
    assert [path.name for path in place.iterdir()] == ["secrets"]
    token = place / "secrets" / "token"
    assert token.read_bytes() == CONTENT
    assert token.stat().st_mtime == 1_700_000_000.25
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert on_progress == sorted(on_progress)
    assert 0 < on_progress[-1] <= archive.stat().st_size


@pytest.mark.parametrize("cut", [1, 9, 1000, 2_000_000])
def test_one_that_was_cut_off_is_refused(archive: Path, cut: int) -> None:
    os.truncate(archive, archive.stat().st_size - cut)
    with pytest.raises(ArchiveInvalidError):
        check(archive)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.9999])
def test_one_with_bytes_changed_is_refused(archive: Path, part: float) -> None:
    """Several, because one of a compressed run may unpack to the very same."""
    content = bytearray(archive.read_bytes())
    place = slice(int(part * len(content)), int(part * len(content)) + 16)
    content[place] = bytes(each ^ 0xFF for each in content[place])
    archive.write_bytes(content)
    with pytest.raises(ArchiveInvalidError):
        check(archive)


@pytest.mark.parametrize(
    "content", [b"", b"hello", gzip.compress(b"hello" * 1000)], ids=["empty", "text", "gzip"]
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ArchiveInvalidError):
        check(tmp_path / "x")


@pytest.mark.parametrize(
    "info",
    [
        member("../outside"),
        member("secrets/../../outside"),
        member("/etc/cron.d/x"),
        member("secrets//x"),
        member("./node"),
        member("secrets/x", tarfile.SYMTYPE, "/etc"),
        member("secrets/x", tarfile.LNKTYPE, "/etc/passwd"),
        member("secrets", tarfile.DIRTYPE),
        member("secrets/x", tarfile.FIFOTYPE),
        member("secrets/x", tarfile.CHRTYPE),
    ],
    ids=lambda info: f"{info.name} {info.type.decode()}",
)
def test_paths_that_lead_elsewhere_and_what_is_no_plain_file_are_refused(
    tmp_path: Path, info: tarfile.TarInfo
) -> None:
    content = b"x" if info.isreg() else b""
    with pytest.raises(ArchiveInvalidError):
        check(forged(tmp_path, (info, content), manifest=lambda it: it))


def test_a_file_twice_or_one_that_the_manifest_does_not_name_is_refused(tmp_path: Path) -> None:
    twice = forged(tmp_path, (member("node"), b"1"), (member("node"), b"1"), manifest=lambda it: it)
    with pytest.raises(ArchiveInvalidError):
        check(twice)
    unnamed = forged(tmp_path, (member("node"), b"1"), manifest=lambda it: it | {"files": {}})
    with pytest.raises(ArchiveInvalidError):
        check(unnamed)
    missing = forged(tmp_path, (member("node"), b"1"), manifest=lambda _: {"about": {}})
    with pytest.raises(ArchiveInvalidError):
        check(missing)
