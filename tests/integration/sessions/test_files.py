"""Files over HTTP."""

import asyncio
import io
import os
import socket
import tarfile
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from sandyard.kit.changes.transitions import Cause, created
from sandyard.kit.ids import resource_id
from sandyard.kit.sizes import GIGABYTE
from tests.integration.sessions.boxes import Box
from tests.support.platform.in_process import code_of
from tests.support.servers.connections import connected

MEGABYTE = 1024 * 1024


async def test_a_file_is_written_read_moved_and_removed(box: Box) -> None:
    written = await box.write("a/b ü\n.bin", b"\x00\xff")
    assert written["path"] == "/workspace/a/b ü\n.bin"
    assert (written["kind"], written["size_bytes"], written["mode"]) == ("file", 2, "0644")
    assert await box.read("a/b ü\n.bin") == b"\x00\xff"
    assert await box.ask("GET", "/files/stat", params={"path": written["path"]}) == written
    move = {"source": written["path"], "target": "moved"}
    assert (await box.ask("POST", "/files/move", json=move))["name"] == "moved"
    await box.ask("DELETE", "/files", params={"path": "moved"})
    gone = await box.call("GET", "/files", params={"path": "moved"})
    assert code_of(gone) == (404, "FILE_NOT_FOUND")


async def test_a_mode_and_an_empty_file(box: Box) -> None:
    parameters = {"path": "run.sh", "mode": "0755"}
    made = await box.ask("PUT", "/files", params=parameters, content=b"#!/bin/sh\necho ran\n")
    assert made["mode"] == "0755"
    assert (await box.run(["./run.sh"]))["result"]["stdout"] == "ran\n"
    await box.write("empty", b"")
    assert await box.read("empty") == b""


async def test_folders_are_made_and_listed(box: Box) -> None:
    assert (await box.ask("POST", "/files/mkdir", json={"path": "x/y"}))["kind"] == "folder"
    await box.ask("POST", "/files/mkdir", json={"path": "x/y"})
    await box.write("x/file", b"1")
    await box.run(["ln", "-s", "file", "x/link"])
    listed = (await box.ask("GET", "/files/list", params={"path": "x", "depth": 2}))["files"]
    assert [(each["name"], each["kind"], each["target"]) for each in listed] == [
        ("file", "file", None),
        ("link", "link", "file"),
        ("y", "folder", None),
    ]
    assert [each["name"] for each in (await box.ask("GET", "/files/list"))["files"]] == ["x"]


@pytest.mark.parametrize(
    ("wanted", "expected", "shown"),
    [
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=8-", b"89", "bytes 8-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=0-99", b"0123456789", "bytes 0-9/10"),
        ("bytes=4-2", b"0123456789", None),
        ("bytes=0-1,3-4", b"0123456789", None),
        ("lines=1-2", b"0123456789", None),
    ],
)
async def test_a_part_is_read_by_its_range(
    box: Box, wanted: str, expected: bytes, shown: str | None
) -> None:
    await box.write("digits", b"0123456789")
    await box.run("ln -s digits first; ln -s first link")
    answer = await box.call("GET", "/files", params={"path": "link"}, headers={"Range": wanted})
    assert answer.status_code == (200 if shown is None else 206)
    assert answer.headers.get("content-range") == shown
    assert answer.content == expected


async def test_a_range_behind_the_end_has_nothing(box: Box) -> None:
    await box.write("digits", b"0123456789")
    answer = await box.call(
        "GET", "/files", params={"path": "digits"}, headers={"Range": "bytes=10-"}
    )
    assert code_of(answer) == (416, "RANGE_NOT_SATISFIABLE")


async def test_a_large_file_passes_without_being_held(box: Box) -> None:
    async def content() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield bytes(MEGABYTE)

    before = psutil.Process().memory_info().rss
    written = await box.ask("PUT", "/files", params={"path": "large"}, content=content())
    assert written["size_bytes"] == 100 * MEGABYTE
    size = 0
    url = f"/api/v1{box.path}/files"
    async with box.api.client.stream(
        "GET", url, params={"path": "large"}, headers=box.owner.headers
    ) as answer:
        async for piece in answer.aiter_raw():
            size += len(piece)
    assert size == 100 * MEGABYTE
    assert psutil.Process().memory_info().rss - before < 60 * MEGABYTE


async def test_other_calls_keep_their_limit(box: Box) -> None:
    large = {"command": "true", "env": {"A": "x" * 2 * MEGABYTE}}
    answer = await box.call("POST", "/commands", json=large)
    assert code_of(answer) == (413, "BODY_TOO_LARGE")


async def test_an_upload_that_breaks_off_leaves_what_was_there(box: Box) -> None:
    await box.write("kept", b"before")
    where = urlsplit(str(box.api.client.base_url))
    head = (
        f"PUT /api/v1{box.path}/files?path=kept HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: {box.owner.headers['Authorization']}\r\nContent-Length: 1000\r\n\r\nhalf"
    )
    async with connected(where.port or 0) as (reader, writer):
        writer.write(head.encode())
        await writer.drain()
        sock: socket.socket = writer.get_extra_info("socket")
        sock.shutdown(socket.SHUT_WR)
        await reader.read()
    assert await box.read("kept") == b"before"
    assert [each["name"] for each in (await box.ask("GET", "/files/list"))["files"]] == ["kept"]


async def test_folders_go_up_and_down_as_tar(box: Box) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("sub/file.txt")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"text"))
    where = {"path": "unpacked"}
    await box.ask("PUT", "/files/tar", params=where, content=packed.getvalue())
    assert await box.read("unpacked/sub/file.txt") == b"text"
    answer = await box.call("GET", "/files/tar", params=where)
    assert answer.headers["content-type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        assert sorted(archive.getnames()) == ["sub", "sub/file.txt"]
    broken = await box.call("PUT", "/files/tar", params=where, content=b"no tar")
    assert code_of(broken) == (400, "INVALID_ARCHIVE")


@pytest.mark.parametrize(
    ("method", "below", "options", "expected"),
    [
        ("GET", "", {"params": {"path": "/dev/zero"}}, (409, "FILE_REFUSED")),
        ("GET", "", {"params": {"path": "/workspace"}}, (409, "FILE_REFUSED")),
        ("GET", "", {}, (400, "INVALID_REQUEST")),
        ("GET", "", {"params": {"path": "a\0b"}}, (400, "INVALID_REQUEST")),
        ("GET", "", {"params": {"path": "ü" * 3000}}, (400, "INVALID_PATH")),
        ("GET", "", {"params": {"path": "x", "other": "1"}}, (400, "UNKNOWN_QUERY_PARAMETER")),
        ("PUT", "", {"params": {"path": "/usr/x"}, "content": b"x"}, (409, "FILE_REFUSED")),
        ("PUT", "", {"params": {"path": "x", "mode": "999"}}, (400, "INVALID_REQUEST")),
        ("DELETE", "", {"params": {"path": "missing"}}, (404, "FILE_NOT_FOUND")),
        ("GET", "/list", {"params": {"depth": "0"}}, (400, "INVALID_REQUEST")),
        ("GET", "/list", {"params": {"path": "missing"}}, (404, "FILE_NOT_FOUND")),
        ("GET", "/tar", {"params": {"path": "missing"}}, (404, "FILE_NOT_FOUND")),
        ("GET", "/stat", {"params": {"path": "missing"}}, (404, "FILE_NOT_FOUND")),
        ("POST", "/move", {"json": {"source": "", "target": "x"}}, (400, "INVALID_REQUEST")),
        ("POST", "/mkdir", {"json": {"path": "/usr/x"}}, (409, "FILE_REFUSED")),
    ],
)
async def test_what_is_wrong_is_told(
    box: Box, method: str, below: str, options: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert code_of(await box.call(method, f"/files{below}", **options)) == expected


async def test_a_query_that_is_wrong_is_told_beside_any_body(box: Box) -> None:
    answer = await box.call("PUT", "/files", params={"path": "x", "mode": "4755"}, content=b"x")
    assert code_of(answer) == (400, "INVALID_REQUEST")
    [mistake] = answer.json()["error"]["details"]["mistakes"]
    assert (mistake["in"], mistake["field"]) == ("query", "mode")


async def test_those_of_a_stopped_sandbox_are_read_written_and_downloaded(box: Box) -> None:
    await box.write("kept", b"before")
    await box.api.post(f"{box.path}/stop", box.owner)
    assert await box.read("kept") == b"before"
    assert await box.read("kept", Range="bytes=2-3") == b"fo"
    missing = await box.call("GET", "/files", params={"path": "missing"})
    assert code_of(missing) == (404, "FILE_NOT_FOUND")
    await box.write("kept", b"repaired")
    names = [each["name"] for each in (await box.ask("GET", "/files/list"))["files"]]
    assert "kept" in names
    answer = await box.call("GET", "/files/tar")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        assert any(name.endswith("kept") for name in archive.getnames())
    stopped = await box.api.get(box.path, box.owner)
    assert stopped["status"] == "stopped"
    async with asyncio.timeout(60):
        while await box.api.part.wired.runtime.run_ids("files"):
            await asyncio.sleep(0.01)
    assert len(await box.api.part.wired.runtime.list_snapshots()) == 1
    await box.api.post(f"{box.path}/start", box.owner)
    assert await box.read("kept") == b"repaired"


async def test_a_start_during_a_write_refuses_the_write(box: Box) -> None:
    await box.write("kept", b"before")
    await box.api.post(f"{box.path}/stop", box.owner)
    is_started = asyncio.Event()

    async def content() -> AsyncIterator[bytes]:
        yield b"late"
        await is_started.wait()

    write = box.call("PUT", "/files", params={"path": "kept"}, content=content())
    writing = asyncio.create_task(write)
    while not await box.api.part.wired.runtime.run_ids("files"):
        await asyncio.sleep(0.01)
    await box.api.post(f"{box.path}/start", box.owner)
    is_started.set()
    assert code_of(await writing) == (409, "SANDBOX_CHANGED")
    assert await box.read("kept") == b"before"
    assert await box.api.part.wired.runtime.run_ids("files") == []


async def test_what_exceeds_the_quota_is_not_written_to_a_stopped_sandbox(box: Box) -> None:
    await box.write("kept", b"before")
    await box.api.post(f"{box.path}/stop", box.owner)
    wired = box.api.part.wired
    sandbox = await wired.store.find(box.sandbox["sandbox_id"])
    assert sandbox is not None
    quota = await wired.storage.quota(sandbox.owner_account_id)
    assert quota.limit is not None
    size = int(quota.limit * GIGABYTE)
    filled = replace(sandbox, sandbox_id=resource_id("sbx"), name="full", snapshot_bytes=size)
    cause = Cause.by("operator", box.api.clock)
    assert await wired.store.apply(created(filled, "sandbox.created", cause))
    answer = await box.call("PUT", "/files", params={"path": "kept"}, content=os.urandom(1 << 20))
    assert code_of(answer) == (409, "QUOTA_EXCEEDED")
    assert await box.read("kept") == b"before"
