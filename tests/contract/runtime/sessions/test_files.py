"""The files of a machine, as every session promises them."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from sandyard.runtime.errors import (
    FileMissingError,
    FileRefusedError,
    InvalidPathError,
    NotRunningError,
    StorageFullError,
)
from sandyard.runtime.sessions.model import FileInfo, FileSelection
from sandyard.runtime.sessions.ports import Session
from tests.support.runtime.sessions import STORAGE_BYTES, SessionHost, pieces, read_all, shell

MEGABYTE = 1024 * 1024
ODD_NAME = 'o"dd\n ü%2f\\ 文.txt'


async def test_a_file_is_written_with_its_folders_and_read_back(session: Session) -> None:
    before = time.time()
    info = await session.files.write("a/b/data.bin", pieces(b"\x00\xff", b"", b"end"))
    assert (info.path, info.kind, info.size_bytes) == ("/workspace/a/b/data.bin", "file", 5)
    assert info.name == "data.bin"
    assert info.modified_at == pytest.approx(before, abs=60)
    assert await session.files.stat("/workspace/a/b/data.bin") == info
    assert await read_all(session, "a/b/data.bin") == b"\x00\xffend"
    assert await shell(session, "cat a/b/data.bin") == b"\x00\xffend"


async def test_attributes_stay_with_a_file_until_it_is_replaced(session: Session) -> None:
    await session.files.write("noted", pieces(b"1"))
    info = await session.files.set_attributes("noted", {"e2b.author": "me", "e2b.empty": ""})
    assert info.attributes == {"e2b.author": "me", "e2b.empty": ""}
    moved = await session.files.move("noted", "moved")
    assert moved.attributes == info.attributes
    assert [each.attributes for each in await session.files.list("/workspace")] == [{}]
    noted = FileSelection(attributes="e2b.a")
    [listed] = await session.files.list("/workspace", selection=noted)
    assert listed.attributes == {"e2b.author": "me"}
    assert (await session.files.write("moved", pieces(b"2"))).attributes == {}
    with pytest.raises(FileMissingError):
        await session.files.set_attributes("missing", {"e2b.author": "me"})


async def test_an_empty_file_is_a_file(session: Session) -> None:
    info = await session.files.write("empty", pieces())
    assert info.size_bytes == 0
    assert await read_all(session, "empty") == b""


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 4, b"3456"),
        (8, 100, b"89"),
        (10, None, b""),
        (100, 5, b""),
        (0, 0, b""),
    ],
)
async def test_a_part_of_a_file_is_read(
    session: Session, offset: int, limit: int | None, expected: bytes
) -> None:
    await session.files.write("digits", pieces(b"0123456789"))
    read = session.files.read("digits", offset=offset, limit=limit)
    assert b"".join([piece async for piece in read]) == expected


async def test_a_large_file_streams_in_pieces(session: Session) -> None:
    async def content() -> AsyncIterator[bytes]:
        for number in range(50):
            yield bytes([number]) * MEGABYTE

    info = await session.files.write("large", content())
    assert info.size_bytes == 50 * MEGABYTE
    largest, total, sums = 0, 0, bytearray()
    async for piece in session.files.read("large"):
        largest = max(largest, len(piece))
        sums += bytes(piece[-total % MEGABYTE :: MEGABYTE])
        total += len(piece)
    assert total == 50 * MEGABYTE
    assert bytes(sums) == bytes(range(50))
    assert largest <= 4 * MEGABYTE


async def test_a_mode_is_set_and_kept_when_the_file_is_replaced(session: Session) -> None:
    made = await session.files.write("run.sh", pieces(b"#!/bin/sh\necho one\n"), mode=0o755)
    assert made.mode == 0o755
    assert await shell(session, "./run.sh") == b"one\n"
    replaced = await session.files.write("run.sh", pieces(b"#!/bin/sh\necho two\n"))
    assert replaced.mode == 0o755
    assert await shell(session, "./run.sh") == b"two\n"
    assert (await session.files.write("plain", pieces(b"x"))).mode == 0o644


async def test_a_write_that_breaks_off_leaves_what_was_there(session: Session) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    await session.files.write("kept", pieces(b"before"))
    for path in ("kept", "new"):
        with pytest.raises(ConnectionResetError):
            await session.files.write(path, broken())
    assert await read_all(session, "kept") == b"before"
    assert [entry.name for entry in await session.files.list("/workspace")] == ["kept"]


async def test_a_reader_sees_the_old_file_or_the_new_one(session: Session) -> None:
    versions = [letter * MEGABYTE for letter in (b"a", b"b")]
    await session.files.write("x", pieces(versions[0]))

    async def rewrite() -> None:
        for content in versions * 3:
            await session.files.write(
                "x", pieces(content[: MEGABYTE // 2], content[: MEGABYTE // 2])
            )

    writing = asyncio.create_task(rewrite())
    seen = set()
    while not writing.done():
        seen.add(await read_all(session, "x"))
        await asyncio.sleep(0)
    await writing
    assert seen <= set(versions)


async def test_a_listing_goes_as_deep_as_it_is_asked(session: Session) -> None:
    for path in ("b/c/d/e.txt", "b/f.txt", "a.txt"):
        await session.files.write(path, pieces(b"x"))
    names = {
        depth: [entry.path for entry in await session.files.list("/workspace", depth=depth)]
        for depth in (1, 2, 9)
    }
    assert names[1] == ["/workspace/a.txt", "/workspace/b"]
    assert names[2] == [*names[1], "/workspace/b/c", "/workspace/b/f.txt"]
    assert names[9] == sorted([*names[2], "/workspace/b/c/d", "/workspace/b/c/d/e.txt"])
    assert [entry.kind for entry in await session.files.list("b")] == ["folder", "file"]
    assert await session.files.list("b/c/d/..", depth=1) == await session.files.list("b/c")


async def test_a_listing_in_pages_is_the_whole_listing(session: Session) -> None:
    for path in ("b/c/d.txt", "b/e.txt", "a.txt", "b-2", "c"):
        await session.files.write(path, pieces(b"x"))
    whole = await session.files.list("/workspace", depth=9)
    pages: list[FileInfo] = []
    for _ in whole:
        after = pages[-1].path if pages else None
        page = FileSelection(after=after, limit=2)
        pages += await session.files.list("/workspace", depth=9, selection=page)
    assert pages == whole


async def test_a_folder_that_is_closed_is_listed_without_what_is_in_it(session: Session) -> None:
    await session.files.write("closed/x", pieces(b"x"))
    await session.files.write("open/x", pieces(b"x"))
    await shell(session, "chmod 0 closed")
    try:
        listed = [entry.path for entry in await session.files.list("/workspace", depth=3)]
        assert {"/workspace/closed", "/workspace/open/x"} <= {*listed}
        if "/workspace/closed/x" not in listed:  # whoever is root reads it all the same
            with pytest.raises(FileRefusedError):
                await session.files.list("closed")
    finally:
        await shell(session, "chmod 700 closed")


async def test_links_are_followed_inside_and_told_as_what_they_are(session: Session) -> None:
    await session.files.write("folder/data", pieces(b"content"))
    await shell(session, "ln -s folder/data link; ln -s folder way; ln -s /nowhere/x broken")
    link = await session.files.stat("link")
    assert (link.kind, link.target) == ("link", "folder/data")
    assert (await session.files.stat("broken")).target == "/nowhere/x"
    assert (await session.files.stat("way/data")).kind == "file"
    assert await read_all(session, "link") == await read_all(session, "way/data") == b"content"
    await session.files.write("link", pieces(b"through"))
    assert (await session.files.stat("link")).kind == "link"
    assert await read_all(session, "folder/data") == b"through"
    deep = [entry.path for entry in await session.files.list("/workspace", depth=9)]
    assert "/workspace/way" in deep
    assert "/workspace/way/data" not in deep
    with pytest.raises(FileMissingError):
        await read_all(session, "broken")


async def test_links_in_a_circle_are_refused(session: Session) -> None:
    await shell(session, "ln -s one two; ln -s two one")
    for attempt in (read_all(session, "one"), session.files.write("one/x", pieces(b"x"))):
        with pytest.raises(FileRefusedError):
            await attempt


async def test_names_may_be_odd(session: Session) -> None:
    await session.files.write(f"{ODD_NAME}/{ODD_NAME}", pieces(b"odd"))
    (folder,) = await session.files.list("/workspace")
    assert folder.name == ODD_NAME
    (file,) = await session.files.list(folder.path)
    assert file.name == ODD_NAME
    assert await read_all(session, file.path) == b"odd"
    moved = await session.files.move(file.path, "-rf")
    assert moved.path == "/workspace/-rf"
    await session.files.remove(moved.path)
    await session.files.remove(folder.path)
    assert await session.files.list("/workspace") == []


async def test_a_name_that_is_no_text_does_not_hide_the_others(session: Session) -> None:
    await shell(session, "touch \"$(printf 'a\\377b')\" other")
    listed = [entry.name for entry in await session.files.list("/workspace")]
    assert len(listed) == 2
    assert "other" in listed
    assert all(name.encode() for name in listed)


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "x" * 4096, "ü" * 2048])
async def test_what_can_be_no_path_is_refused(session: Session, path: str) -> None:
    for attempt in (
        session.files.stat(path),
        session.files.list(path),
        session.files.write(path, pieces(b"x")),
        session.files.make_folder(path),
        session.files.move(path, "x"),
        session.files.remove(path),
        session.files.write_tar(path, pieces(b"")),
        anext(session.files.read(path)),
        anext(session.files.read_tar(path)),
        anext(session.files.watch(path)),
    ):
        with pytest.raises(InvalidPathError):
            await attempt


async def test_a_name_that_is_too_long_is_refused(session: Session) -> None:
    with pytest.raises(FileRefusedError):
        await session.files.write("n" * 300, pieces(b"x"))


async def test_what_is_not_there_is_missing(session: Session) -> None:
    for attempt in (
        session.files.stat("missing"),
        session.files.list("missing"),
        session.files.move("missing", "elsewhere"),
        session.files.remove("missing"),
        anext(session.files.read("missing/below")),
        anext(session.files.read_tar("missing")),
        anext(session.files.watch("missing")),
    ):
        with pytest.raises(FileMissingError):
            await attempt


@pytest.mark.timeout(60)
async def test_only_plain_files_are_read_and_written(session: Session) -> None:
    await shell(session, "mkfifo pipe; mkdir folder")
    assert (await session.files.stat("pipe")).kind == "other"
    for path in ("pipe", "folder", "/dev/zero", "/dev/tty"):
        for attempt in (read_all(session, path), session.files.write(path, pieces(b"x"))):
            with pytest.raises(FileRefusedError):
                await attempt
    assert (await session.files.stat("pipe")).kind == "other"


async def test_the_kind_of_file_must_fit(session: Session) -> None:
    await session.files.write("file", pieces(b"x"))
    await session.files.write("full/file", pieces(b"x"))
    await session.files.make_folder("folder")
    for attempt in (
        session.files.list("file"),
        session.files.write("file/below", pieces(b"x")),
        session.files.make_folder("file"),
        session.files.make_folder("file/below"),
        session.files.move("folder", "full"),
        session.files.move("folder", "file"),
        session.files.move("full", "full/below"),
        session.files.write_tar("file", pieces(b"")),
        anext(session.files.read_tar("file")),
    ):
        with pytest.raises(FileRefusedError):
            await attempt
    assert await read_all(session, "file") == b"x"


async def test_the_user_may_not_change_the_system(session: Session) -> None:
    for attempt in (
        session.files.write("/usr/bin/env", pieces(b"x")),
        session.files.write("/proc/new", pieces(b"x")),
        session.files.make_folder("/usr/new"),
        session.files.move("/usr/bin/env", "env"),
        session.files.remove("/usr/bin"),
        session.files.remove("/workspace"),
    ):
        with pytest.raises(FileRefusedError):
            await attempt
    assert await shell(session, "env echo there") == b"there\n"


async def test_a_full_machine_says_so_and_recovers(session: Session) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(2 * STORAGE_BYTES // MEGABYTE):
            yield bytes(MEGABYTE)

    with pytest.raises(StorageFullError):
        await session.files.write("too-much", endless())
    with pytest.raises(FileMissingError):
        await session.files.stat("too-much")
    await session.files.write("small", pieces(b"x"))
    assert await read_all(session, "small") == b"x"


async def test_folders_are_made_once(session: Session) -> None:
    assert await session.files.make_folder("a/b/c")
    assert not await session.files.make_folder("a/b")
    assert (await session.files.stat("a/b/c")).kind == "folder"


async def test_a_move_takes_the_whole_tree_and_replaces_a_file(session: Session) -> None:
    await session.files.write("from/deep/file", pieces(b"moved"))
    await session.files.make_folder("empty")
    assert (await session.files.move("from", "empty")).kind == "folder"
    await session.files.write("old", pieces(b"old"))
    assert (await session.files.move("empty/deep/file", "old")).size_bytes == 5
    assert await read_all(session, "old") == b"moved"
    with pytest.raises(FileMissingError):
        await session.files.stat("from")
    with pytest.raises(FileMissingError):
        await session.files.move("old", "missing/old")


async def test_a_tree_is_removed_and_what_its_links_show_stays(session: Session) -> None:
    await session.files.write("kept/file", pieces(b"kept"))
    await session.files.write("tree/a/b/file", pieces(b"x"))
    await shell(session, "ln -s ../kept tree/link; ln -s kept link; chmod 500 tree/a/b")
    await session.files.remove("link")
    await session.files.remove("tree")
    assert [entry.name for entry in await session.files.list("/workspace")] == ["kept"]
    assert await read_all(session, "kept/file") == b"kept"


async def test_another_session_sees_the_same_files(machine: SessionHost, session: Session) -> None:
    await session.files.write("shared", pieces(b"x"))
    assert await read_all(await machine.connect(), "shared") == b"x"


async def test_a_machine_that_ended_has_no_files(machine: SessionHost, session: Session) -> None:
    await session.files.write("x", pieces(b"x"))
    await machine.end()
    for attempt in (
        session.files.stat("x"),
        session.files.list("/workspace"),
        session.files.write("y", pieces(b"y")),
        session.files.make_folder("z"),
        read_all(session, "x"),
        anext(session.files.read_tar("/workspace")),
        anext(session.files.watch("/workspace")),
    ):
        with pytest.raises(NotRunningError):
            await attempt
