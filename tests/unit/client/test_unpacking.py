"""A folder that is downloaded stays in its folder, on a Python whose `tarfile` has no filters."""

import io
import tarfile
from pathlib import Path

import pytest
from sandyard_client.unpacking import unpack


@pytest.fixture(autouse=True)
def _as_on_python_3_11_2(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("data_filter", "tar_filter", "fully_trusted_filter"):
        monkeypatch.delattr(tarfile, name, raising=False)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(b"of the user")
    return tmp_path / "target"


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.mtime = kind, link, mode, 1_700_000_000
    return info


def unpack_all(target: Path, *entries: tarfile.TarInfo) -> None:
    archive = target.with_name("folder.tar")
    with tarfile.open(archive, "w") as tar:
        for each in entries:
            content = each.name.encode() if each.isreg() else b""
            each.size = len(content)
            tar.addfile(each, io.BytesIO(content))
    unpack(archive, target)


def found_in(target: Path) -> set[str]:
    return {str(each.relative_to(target)) for each in target.rglob("*")}


def test_files_folders_and_links_are_unpacked(target: Path) -> None:
    unpack_all(
        target,
        entry("bin", tarfile.DIRTYPE),
        entry("bin/tool", mode=0o777),
        entry("bin/same", tarfile.LNKTYPE, link="bin/tool"),
        entry("notes", mode=0o4066),
        entry("bin/up", tarfile.SYMTYPE, link="../notes"),
        entry("/rooted"),
    )
    assert (target / "bin/tool").read_text() == "bin/tool"
    assert (target / "bin/tool").stat().st_mode & 0o7777 == 0o755
    assert (target / "notes").stat().st_mode & 0o7777 == 0o644
    assert (target / "bin/same").samefile(target / "bin/tool")
    assert (target / "bin/up").readlink() == Path("../notes")
    assert (target / "rooted").read_text() == "/rooted"
    assert {each.stat().st_mtime for each in target.rglob("*")} == {1_700_000_000}


def test_what_is_there_is_replaced(target: Path) -> None:
    unpack_all(target, entry("a"), entry("b", tarfile.SYMTYPE, link="a"))
    (target / "a").write_bytes(b"old")
    unpack_all(target, entry("a"), entry("b", tarfile.SYMTYPE, link="a"))
    assert (target / "b").read_text() == "a"


HOSTILE = {
    "a path above": (entry("../escaped"),),
    "a path that comes back": (entry("a/../../escaped"),),
    "a link above": (entry("escaped", tarfile.SYMTYPE, link="../secret"),),
    "a link to an absolute path": (entry("escaped", tarfile.SYMTYPE, link="/etc/passwd"),),
    "a hard link above": (entry("escaped", tarfile.LNKTYPE, link="../secret"),),
    "a hard link to an absolute path": (entry("escaped", tarfile.LNKTYPE, link="/etc/passwd"),),
    "a hard link to a link that was left out": (
        entry("a", tarfile.SYMTYPE, link="../secret"),
        entry("escaped", tarfile.LNKTYPE, link="a"),
    ),
    "a device": (entry("escaped", tarfile.CHRTYPE),),
    "a pipe": (entry("escaped", tarfile.FIFOTYPE),),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_leave_the_folder_is_left_out(
    target: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    unpack_all(target, *HOSTILE[name], entry("kept"))
    assert found_in(target) == {"kept"}
    assert not (target.parent / "escaped").exists()
    assert (target.parent / "secret").read_bytes() == b"of the user"
    assert caplog.messages[0].startswith("left out: ")


@pytest.mark.parametrize("path", ["out/file", "out"])
def test_nothing_is_written_through_a_link_of_the_user(target: Path, path: str) -> None:
    target.mkdir()
    (target / "out").symlink_to(target.parent / "elsewhere")
    unpack_all(target, entry(path))
    assert found_in(target) == {"out"}
    assert not (target.parent / "elsewhere").exists()
