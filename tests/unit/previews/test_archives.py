"""Archives of a project's files: what comes back, and what is refused."""

import gzip
import io
import tarfile

import pytest

from sandyard.previews.archives import most_bytes, pack, unpack
from sandyard.previews.errors import ArchiveError, FilesLimitError
from sandyard.previews.files import FileLimits, ProjectFile

LIMITS = FileLimits(files=3, total_bytes=10)
LONG = "/".join(["é" * 100] * 2 + ["x" * 111])
"""512 bytes."""


def archive(*members: tarfile.TarInfo, content: bytes = b"") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for each in members:
            tar.addfile(each, io.BytesIO(content) if each.isreg() else None)
    return packed.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, "a" if kind != tarfile.REGTYPE else ""
    return info


def test_files_of_any_bytes_and_names_come_back() -> None:
    contents = {"a": b"\x00\xff", LONG: b"12345678", "empty": b""}
    packed = pack([ProjectFile(path, content, 1) for path, content in contents.items()])
    assert unpack(io.BytesIO(packed), LIMITS) == contents
    assert len(packed) <= most_bytes(LIMITS)


def test_folders_are_left_out_and_names_are_relative() -> None:
    packed = archive(member("./", tarfile.DIRTYPE), member("./b", tarfile.DIRTYPE), member("./b/c"))
    assert unpack(io.BytesIO(packed), LIMITS) == {"b/c": b""}


@pytest.mark.parametrize(
    "packed",
    [
        b"no archive",
        gzip.compress(archive(member("a"))),
        archive(member("a"), member("b", tarfile.SYMTYPE)),
        archive(member("a"), member("b", tarfile.LNKTYPE)),
        archive(member("a", tarfile.FIFOTYPE)),
        archive(member("a", size=9), content=b"123456789")[:515],
    ],
    ids=["text", "compressed", "link", "hard-link", "fifo", "cut-off"],
)
def test_what_is_no_plain_archive_of_files_is_refused(packed: bytes) -> None:
    with pytest.raises(ArchiveError):
        unpack(io.BytesIO(packed), LIMITS)


@pytest.mark.parametrize(
    "packed",
    [
        archive(*(member(str(n)) for n in range(4))),
        archive(member("a", size=11), content=b"x" * 11),
    ],
)
def test_what_is_beyond_the_limits_is_not_read(packed: bytes) -> None:
    with pytest.raises(FilesLimitError):
        unpack(io.BytesIO(packed), LIMITS)
