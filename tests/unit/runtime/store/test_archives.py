"""Archives on disk: tars of a workspace's files, and snapshots of a machine, side by side."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.kit.errors import BodyTooLargeError
from sandyard.runtime.errors import SnapshotNotFoundError
from sandyard.runtime.store.archives import ArchiveFolder


async def pieces(*content: bytes) -> AsyncIterator[bytes]:
    for each in content:
        yield each


async def test_both_kinds_are_found_listed_and_deleted(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path / "archives")
    await folder.write("old", pieces(b"1", b"23"))
    (await folder.place("new")).write_bytes(b"packed")
    assert [(each.id, each.size_bytes) for each in await folder.list_all()] == [
        ("new", 6),
        ("old", 3),
    ]
    assert [folder.find_packed(each) is not None for each in ("new", "old", None)] == [
        *(True, False, False)
    ]
    assert b"".join([piece async for piece in folder.read("old")]) == b"123"
    for archive_id in ("new", "old", "old"):
        await folder.delete(archive_id)
    assert await folder.list_all() == []


async def test_one_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = ArchiveFolder(tmp_path)
    with pytest.raises(BodyTooLargeError):
        await folder.write("large", pieces(b"123"), most_bytes=2)
    assert list(tmp_path.iterdir()) == []
    for archive_id in ("", "..", "a/b", ".hidden"):
        with pytest.raises(SnapshotNotFoundError):
            await folder.place(archive_id)
        with pytest.raises(SnapshotNotFoundError):
            await folder.require(archive_id)
