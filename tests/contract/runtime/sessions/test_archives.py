"""Folders as tar archives, and what happens in a folder, as every session promises them."""

import asyncio
import io
import tarfile
from collections.abc import Callable
from contextlib import suppress

import pytest

from sandyard.runtime.errors import FileMissingError, InvalidArchiveError, NotRunningError
from sandyard.runtime.sessions.model import FileChange
from sandyard.runtime.sessions.ports import Session
from tests.support.runtime.sessions import SessionHost, pieces, read_all, shell


def archive(*entries: tarfile.TarInfo, content: bytes = b"escaped") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as opened:
        for entry in entries:
            entry.size = len(content) if entry.isreg() else 0
            opened.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, *, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


HOSTILE = {
    "a parent": [entry("../escaped")],
    "a parent below": [entry("a/../../escaped")],
    "absolute": [entry("/workspace/escaped")],
    "through a link": [entry("out", tarfile.SYMTYPE, target=".."), entry("out/escaped")],
    "through an absolute link": [
        entry("out", tarfile.SYMTYPE, target="/workspace"),
        entry("out/escaped"),
    ],
    "a hard link out": [entry("stolen", tarfile.LNKTYPE, target="../secret")],
    "a folder": [entry("../escaped", tarfile.DIRTYPE)],
    "a link there": [entry("../escaped", tarfile.SYMTYPE, target="/etc")],
}


async def packed(session: Session, path: str) -> bytes:
    return b"".join([piece async for piece in session.files.read_tar(path)])


async def test_a_folder_goes_through_a_tar_and_back(session: Session) -> None:
    await session.files.write("from/sub/ü\n.txt", pieces(b"text"))
    await session.files.write("from/run.sh", pieces(b"#!/bin/sh\n"), mode=0o755)
    await session.files.make_folder("from/empty")
    await shell(session, "ln -s sub/x from/link; ln -s /usr/bin from/away")
    content = await packed(session, "from")
    with tarfile.open(fileobj=io.BytesIO(content)) as opened:
        names = {name.removeprefix("./") for name in opened.getnames()}
    assert names - {"."} == {"sub", "sub/ü\n.txt", "run.sh", "empty", "link", "away"}
    await session.files.write_tar("to/here", pieces(content[:700], content[700:]))
    before, after = [
        [
            (each.path.removeprefix(f"/workspace/{folder}"), each.kind, each.mode, each.target)
            for each in await session.files.list(folder, depth=9)
        ]
        for folder in ("from", "to/here")
    ]
    assert after == before
    assert await read_all(session, "to/here/sub/ü\n.txt") == b"text"


async def test_an_archive_replaces_what_has_the_same_name_and_keeps_the_rest(
    session: Session,
) -> None:
    await session.files.write("into/a", pieces(b"old"))
    await session.files.write("into/b", pieces(b"kept"))
    await session.files.write_tar("into", pieces(archive(entry("a"), content=b"new")))
    assert [await read_all(session, f"into/{name}") for name in "ab"] == [b"new", b"kept"]


async def test_an_empty_folder_is_an_archive_too(session: Session) -> None:
    await session.files.make_folder("empty")
    await session.files.write_tar("again", pieces(await packed(session, "empty")))
    assert await session.files.list("again") == []


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_entry_leaves_the_folder(session: Session, name: str) -> None:
    await session.files.write("secret", pieces(b"secret"))
    with pytest.raises(InvalidArchiveError):
        await session.files.write_tar("into", pieces(archive(*HOSTILE[name])))
    with pytest.raises(FileMissingError):
        await session.files.stat("escaped")
    with pytest.raises(FileMissingError):
        await session.files.stat("into/stolen")
    assert await read_all(session, "secret") == b"secret"


async def test_a_link_that_was_there_before_leads_nowhere_either(session: Session) -> None:
    await shell(session, "mkdir into; ln -s .. into/out; ln -s ../target into/file")
    with pytest.raises(InvalidArchiveError):
        await session.files.write_tar("into", pieces(archive(entry("out/escaped"))))
    with suppress(InvalidArchiveError):  # the link may be replaced by the file
        await session.files.write_tar("into", pieces(archive(entry("file"))))
    names = [each.name for each in await session.files.list("/workspace")]
    assert names == ["into"]


@pytest.mark.parametrize("content", [b"", b"no tar", bytes(300), archive(entry("a" * 90))[:600]])
async def test_what_is_no_whole_archive_is_refused(session: Session, content: bytes) -> None:
    with pytest.raises(InvalidArchiveError):
        await session.files.write_tar("into", pieces(content))


class Watcher:
    """Collects what happens in a folder; `until` waits for it."""

    def __init__(self, session: Session, path: str, *, recursive: bool = False) -> None:
        self._session = session
        self._seen: set[FileChange] = set()
        self._more = asyncio.Event()
        self.watching = asyncio.create_task(self._watch(path, recursive=recursive))

    async def _watch(self, path: str, *, recursive: bool) -> None:
        async for change in self._session.files.watch(path, recursive=recursive):
            self._seen.add(change)
            self._more.set()

    async def begin(self, folder: str) -> None:
        """Nothing says when it begins: touch something until that is seen."""
        for number in range(1000):
            await self._session.files.write(f"{folder}/begin", pieces(str(number).encode()))
            if self._seen:
                return
            await asyncio.sleep(0.02)

    async def until(self, *wanted: tuple[str, str]) -> None:
        async with asyncio.timeout(20):
            while not set(wanted) <= {(each.path, each.kind) for each in self._seen}:
                assert not self.watching.done()
                self._more.clear()
                await self._more.wait()

    def has_seen(self, test: Callable[[FileChange], bool]) -> bool:
        return any(test(each) for each in self._seen)


async def test_a_watch_tells_what_happens_in_the_folder(session: Session) -> None:
    await session.files.make_folder("w/below")
    watcher = Watcher(session, "w")
    await watcher.begin("w")
    await session.files.write("w/below/unseen", pieces(b"x"))
    await shell(session, "echo one >w/file")
    await watcher.until(("/workspace/w/file", "created"), ("/workspace/w/file", "written"))
    await session.files.move("w/file", "w/other")
    await watcher.until(("/workspace/w/file", "renamed"), ("/workspace/w/other", "created"))
    await session.files.remove("w/other")
    await watcher.until(("/workspace/w/other", "removed"))
    assert not watcher.has_seen(lambda change: "unseen" in change.path)
    watcher.watching.cancel()


async def test_a_recursive_watch_sees_folders_that_are_made_later(session: Session) -> None:
    await session.files.make_folder("w/old")
    watcher = Watcher(session, "w", recursive=True)
    await watcher.begin("w")
    await session.files.write("w/old/file", pieces(b"x"))
    await watcher.until(("/workspace/w/old/file", "created"))
    await session.files.make_folder("w/new")
    await watcher.until(("/workspace/w/new", "created"))
    await shell(session, "echo two >w/new/file")
    await watcher.until(("/workspace/w/new/file", "written"))
    watcher.watching.cancel()


async def test_a_watch_ends_with_the_machine(machine: SessionHost, session: Session) -> None:
    watcher = Watcher(session, "/workspace")
    await watcher.begin("/workspace")
    await machine.end()
    async with asyncio.timeout(20):
        with suppress(NotRunningError):
            await watcher.watching
