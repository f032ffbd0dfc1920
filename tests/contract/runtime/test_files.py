"""The files of a running program, and what is kept of them."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.runtime.errors import FilesTooLargeError, UnsafePathError
from sandyard.runtime.model import FileChanges, Files, Program, Running
from sandyard.runtime.ports import Runtime
from tests.support.runtime.programs import LIMITS, MEGABYTE, STATIC, new_run_id
from tests.support.runtime.runtimes import RuntimeHost, serving

COUNTING = serving("echo run >>runs")


async def shown(host: RuntimeHost, running: Running, *paths: str) -> list[bytes | None]:
    """What these paths show; None for what is not there."""
    pages = [await host.page(running, path) for path in paths]
    return [page.content if page.is_success else None for page in pages]


async def test_files_are_written_and_deleted_deletions_first(
    host: RuntimeHost, runtime: Runtime
) -> None:
    files = Files({"index.html": b"old", "gone/page.html": b"x", "kept.html": b"kept"})
    running = await runtime.start(new_run_id(), Program(files), LIMITS)
    changes = FileChanges(
        written={
            "index.html": b"new",
            "a/b/c.html": b"deep",
            "gone": b"a file now",
            "a/ü b.html": b"named",
            'o"dd\n%.html': b"odd",
        },
        deleted=frozenset({"gone/page.html", "never/was", "kept.html"}),
    )
    await runtime.write_files(running.run_id, changes)
    assert await shown(host, running, "/", "/a/b/c.html", "/gone", "/kept.html") == [
        b"new",
        b"deep",
        b"a file now",
        None,
    ]
    assert await shown(host, running, "/a/ü b.html", "/o%22dd%0A%25.html") == [b"named", b"odd"]
    emptied = frozenset({"a/ü b.html", "a/b/c.html"})
    await runtime.write_files(running.run_id, FileChanges(deleted=emptied))
    assert await shown(host, running, "/a") == [None]
    both = FileChanges(written={"index.html": b"again"}, deleted=frozenset({"index.html"}))
    await runtime.write_files(running.run_id, both)
    assert await shown(host, running, "/") == [b"again"]


async def test_nothing_is_written_if_a_path_is_not_safe_or_it_is_too_much(
    host: RuntimeHost, runtime: Runtime
) -> None:
    running = await runtime.start(new_run_id(), STATIC, LIMITS)
    for path in ("../x", "/etc/x", "a/../../x", "a//b", "a\0b", "", "a\\b"):
        for changes in (
            FileChanges(written={"index.html": b"worse", path: b"x"}),
            FileChanges(written={"index.html": b"worse"}, deleted=frozenset({path})),
        ):
            with pytest.raises(UnsafePathError):
                await runtime.write_files(running.run_id, changes)
    large = {"index.html": b"worse", "large": bytes(LIMITS.storage_bytes)}
    with pytest.raises(FilesTooLargeError):
        await runtime.write_files(running.run_id, FileChanges(written=large))
    assert await shown(host, running, "/", "/large") == [b"<h1>hello</h1>", None]


async def test_no_link_leads_out(runtime: Runtime, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_bytes(b"untouched")
    program = serving(f"ln -s {outside} out", f"ln -s {outside}/file link")
    running = await runtime.start(new_run_id(), program, LIMITS)
    for path in ("out/escape", "out/file", "out/folder/escape", "link"):
        with suppress(UnsafePathError):  # a link in the way may be refused or be replaced
            await runtime.write_files(running.run_id, FileChanges(written={path: b"escaped"}))
        with suppress(UnsafePathError):
            await runtime.write_files(running.run_id, FileChanges(deleted=frozenset({path})))
    assert sorted(outside.rglob("*")) == [outside / "file", outside / "folder"]
    assert (outside / "file").read_bytes() == b"untouched"


async def test_a_file_is_seen_before_or_after_a_write_and_never_in_between(
    host: RuntimeHost, runtime: Runtime
) -> None:
    versions = [letter * MEGABYTE for letter in (b"a", b"b")]
    running = await runtime.start(new_run_id(), Program(Files({"x": versions[0]})), LIMITS)
    writing = asyncio.create_task(rewrite(runtime, running, versions))
    seen = set()
    while not writing.done():
        seen.update(await shown(host, running, "/x"))
    await writing
    assert seen <= set(versions)
    assert await shown(host, running, "/x") == [versions[1]]


async def rewrite(runtime: Runtime, running: Running, versions: list[bytes]) -> None:
    for content in versions * 3:
        await runtime.write_files(running.run_id, FileChanges(written={"x": content}))


async def test_what_a_program_wrote_is_there_after_stop_and_start(
    host: RuntimeHost, runtime: Runtime
) -> None:
    first = await runtime.start(new_run_id(), COUNTING, LIMITS)
    assert await shown(host, first, "/runs") == [b"run\n"]
    snapshot = (await runtime.stop(first.run_id)).snapshot
    assert snapshot is not None
    assert snapshot.size_bytes > 0
    assert snapshot.created_at == pytest.approx(time.time(), abs=30)
    await runtime.forget(first.run_id)
    again = await runtime.start(new_run_id(), replace(COUNTING, snapshot_id=snapshot.id), LIMITS)
    assert await shown(host, again, "/runs") == [b"run\nrun\n"]


async def test_a_snapshot_is_known_until_it_is_deleted(host: RuntimeHost, runtime: Runtime) -> None:
    first, second = new_run_id(), new_run_id()
    snapshots = []
    for run_id in (first, second):
        await runtime.start(run_id, STATIC, LIMITS)
        snapshots.append((await runtime.stop(run_id)).snapshot)
        await runtime.forget(run_id)
    kept, deleted = snapshots
    assert kept is not None
    assert deleted is not None
    for server in (runtime, host.connect()):
        listed = await server.list_snapshots()
        assert sorted(listed, key=lambda each: each.created_at) == [kept, deleted]
        assert await server.has_snapshot(deleted.id)
    for _ in range(2):
        await runtime.delete_snapshot(deleted.id)
        assert not await runtime.has_snapshot(deleted.id)
    assert await host.connect().list_snapshots() == [kept]
    for unknown in ("unknown", "../../etc/passwd"):
        assert not await runtime.has_snapshot(unknown)


async def test_a_sample_is_of_what_runs_now(runtime: Runtime) -> None:
    running = await runtime.start(new_run_id(), STATIC, LIMITS)
    before = await runtime.sample(running.run_id)
    assert before.at == pytest.approx(time.time(), abs=5)
    assert before.cpu_seconds >= 0
    assert before.memory_bytes > 0
    assert before.processes > 0
    stored = FileChanges(written={"stored": bytes(5 * MEGABYTE)})
    await runtime.write_files(running.run_id, stored)
    after = await runtime.sample(running.run_id)
    assert after.at >= before.at
    assert after.cpu_seconds >= before.cpu_seconds
    assert 4 * MEGABYTE < after.storage_bytes - before.storage_bytes < 7 * MEGABYTE
