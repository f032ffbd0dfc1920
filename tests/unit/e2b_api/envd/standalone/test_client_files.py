"""Files of this machine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from sandyard.e2b_api.envd.standalone.machine import SystemClient
from sandyard.runtime.errors import FileMissingError, FileRefusedError, InvalidPathError
from sandyard.runtime.local.client.session import LocalSession

FILES = LocalSession(SystemClient()).files


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def pieces(*content: bytes) -> AsyncIterator[bytes]:
    for each in content:
        yield each


async def read(path: Path, **part: Any) -> bytes:
    return b"".join([each async for each in FILES.read(str(path), **part)])


async def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    written = await FILES.write(str(path), pieces(b"one", b"two"), mode=0o600)
    assert (written.size_bytes, written.mode) == (6, 0o600)
    assert await read(path) == b"onetwo"
    assert await read(path, offset=2, limit=3) == b"etw"

    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await FILES.write(str(path), broken())
    assert await read(path) == b"onetwo"
    assert [each.name for each in await FILES.list(str(path.parent))] == ["file"]


async def test_large_listings(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / f"{number:04}-{'x' * 60}").touch()
    assert len(await FILES.list(str(tmp_path))) == 2000


async def test_attributes_stay_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    await FILES.set_attributes(str(tmp_path / "a"), {"colour": "red"})
    moved = await FILES.move(str(tmp_path / "a"), str(tmp_path / "b"))
    assert moved.attributes == {"colour": "red"}


async def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(FileMissingError):
        await FILES.stat(str(tmp_path / "missing"))
    with pytest.raises(FileRefusedError):
        await read(tmp_path)
    with pytest.raises(FileRefusedError):
        await FILES.write(str(tmp_path), pieces())
    with pytest.raises(InvalidPathError):
        await FILES.stat("a\0b")
    (tmp_path / "file").touch()
    with pytest.raises(FileRefusedError):
        await FILES.make_folder(str(tmp_path / "file" / "below"))


async def test_a_watch_ends_with_its_reader(tmp_path: Path) -> None:
    ready = asyncio.Event()
    changes: Any = FILES.watch(str(tmp_path), recursive=True, ready=ready)
    open_before = count_descriptors()
    async with aclosing(changes), asyncio.timeout(30):
        first = asyncio.ensure_future(anext(changes))
        await ready.wait()
        (tmp_path / "new").mkdir()
        assert (await first).path == str(tmp_path / "new")
    async with asyncio.timeout(30):
        while count_descriptors() > open_before:
            await asyncio.sleep(0.01)
