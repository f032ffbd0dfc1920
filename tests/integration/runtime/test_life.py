"""A program's life: start, serve, measure, change, stop, restore, forget."""

import asyncio
import time
from dataclasses import replace

import pytest

from sandyard.platform.runtime.errors import (
    AttemptEndedError,
    FilesTooLargeError,
    NotHeldError,
    NotRunningError,
    SnapshotNotFoundError,
    StillRunningError,
    UnsafePathError,
)
from sandyard.platform.runtime.local.builtin import builtin_names
from sandyard.platform.runtime.local.runtime import LocalRuntime
from sandyard.platform.runtime.model import (
    Ended,
    FileChanges,
    Files,
    Owner,
    Program,
    Repository,
    Running,
)
from tests.integration.runtime.programs import (
    LIMITS,
    MEGABYTE,
    OBEDIENT,
    STATIC,
    fetch,
    inside,
    new_owner,
    shell,
    started,
    until_ended,
)


@pytest.mark.parametrize("name", builtin_names())
async def test_a_built_in_template_serves_a_page(runtime: LocalRuntime, name: str) -> None:
    async with started(runtime, Program(Repository(f"builtin:{name}"))) as running:
        assert b"<h1>" in await fetch(running.url)
        assert running.deadline_at == pytest.approx(running.started_at + LIMITS.max_running_sec)


async def test_what_a_program_wrote_is_there_after_stop_and_start(runtime: LocalRuntime) -> None:
    first = new_owner()
    program = Program(Repository("builtin:python-web"))
    running = await runtime.start(first, program, LIMITS)
    await fetch(running.url, b"name=Ada")
    ended = await runtime.stop(first)
    assert (ended.reason, ended.started_at) == ("stopped", running.started_at)
    assert running.started_at < ended.ended_at <= time.time()
    assert ended.snapshot is not None
    assert await runtime.find_snapshot(ended.snapshot.id) == ended.snapshot
    assert ended.snapshot.size_bytes > 0
    assert ended.snapshot.created_at == pytest.approx(time.time(), abs=30)
    await runtime.forget(first)
    async with started(runtime, replace(program, snapshot_id=ended.snapshot.id)) as again:
        assert b"<li>Ada</li>" in await fetch(again.url)
    assert ended.snapshot in await runtime.list_snapshots()
    for _ in range(2):
        await runtime.delete_snapshot(ended.snapshot.id)
        assert await runtime.find_snapshot(ended.snapshot.id) is None


async def test_stop_says_the_same_however_often_it_is_asked(runtime: LocalRuntime) -> None:
    owner = new_owner()
    await runtime.start(owner, STATIC, LIMITS)
    together = await asyncio.gather(*(runtime.stop(owner) for _ in range(5)))
    assert (
        len({(e.reason, e.ended_at, e.snapshot) for e in [*together, await runtime.stop(owner)]})
        == 1
    )
    assert await runtime.find(owner) == together[0]


async def test_what_was_forgotten_is_unknown(runtime: LocalRuntime) -> None:
    owner = new_owner()
    await runtime.start(owner, STATIC, LIMITS)
    with pytest.raises(StillRunningError):
        await runtime.forget(owner)
    await runtime.stop(owner)
    for _ in range(2):
        await runtime.forget(owner)
        assert await runtime.find(owner) is None
    assert await runtime.list_held("sandbox") == []
    for call in (runtime.stop(owner), runtime.sample(owner), runtime.tail_logs(owner, lines=1)):
        with pytest.raises(NotHeldError):
            await call


async def test_a_list_has_its_own_kind_only(runtime: LocalRuntime) -> None:
    preview = Owner("preview", "p1", "a1")
    async with started(runtime, STATIC) as running:
        await runtime.start(preview, STATIC, LIMITS)
        assert await runtime.list_held("sandbox") == [running]
        held = await runtime.list_held("preview")
        assert [entry.owner for entry in held] == [preview]
        ended = await runtime.stop(preview)
        assert await runtime.list_held("preview") == [ended]


async def test_starts_at_once_start_one(runtime: LocalRuntime) -> None:
    owner = new_owner()
    all_running = await asyncio.gather(*(runtime.start(owner, OBEDIENT, LIMITS) for _ in range(6)))
    assert len(set(all_running)) == 1
    assert (await runtime.sample(owner)).processes < 8
    assert await runtime.start(owner, OBEDIENT, LIMITS) == all_running[0]


async def test_an_attempt_runs_once(runtime: LocalRuntime) -> None:
    owner = new_owner()
    await runtime.start(owner, STATIC, LIMITS)
    await runtime.stop(owner)
    with pytest.raises(AttemptEndedError):
        await runtime.start(owner, STATIC, LIMITS)


async def test_one_that_ends_at_once_has_run_all_the_same(runtime: LocalRuntime) -> None:
    owner = new_owner()
    running = await runtime.start(owner, STATIC, replace(LIMITS, max_running_sec=0))
    ended = await until_ended(runtime, owner)
    assert (ended.reason, ended.started_at) == ("timeout", running.started_at)


async def test_a_sample_is_of_the_real_processes(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        before = await runtime.sample(running.owner)
        work = """
import os, time
held = bytearray(os.urandom(1 << 20) * 60)
open("stored", "wb").write(os.urandom(20 << 20))
until = time.process_time() + 0.5
while time.process_time() < until:
    pass
__import__("builtins").held = held
"""
        await inside(running, work)
        after = await runtime.sample(running.owner)
        assert 0.4 < after.cpu_seconds - before.cpu_seconds < 5
        assert 55 * MEGABYTE < after.memory_bytes - before.memory_bytes < 80 * MEGABYTE
        assert 19 * MEGABYTE < after.storage_bytes - before.storage_bytes < 22 * MEGABYTE
        assert before.at < after.at


async def test_logs_are_there_as_a_tail_and_as_they_come(runtime: LocalRuntime) -> None:
    command = (
        "echo one; echo two >&2; (sleep 1; for n in 3 4 5; do echo line $n; sleep 0.1; done) & "
        'exec python3 -m http.server "$PORT" --bind 127.0.0.1 >/dev/null 2>&1'
    )
    async with started(runtime, shell(command)) as running:
        assert await runtime.tail_logs(running.owner, lines=10) == ["one", "two"]
        assert await runtime.tail_logs(running.owner, lines=1) == ["two"]
        assert await runtime.tail_logs(running.owner, lines=0) == []
        followed = []
        async with asyncio.timeout(5):
            async for line in runtime.follow_logs(running.owner, lines=1):
                followed.append(line)
                if line == "line 5":
                    break
        assert followed == ["two", "line 3", "line 4", "line 5"]


async def test_following_ends_with_the_program(runtime: LocalRuntime) -> None:
    command = (
        'python3 -m http.server "$PORT" --bind 127.0.0.1 >/dev/null 2>&1 & sleep 1; printf last'
    )
    async with started(runtime, shell(command)) as running, asyncio.timeout(10):
        assert [line async for line in runtime.follow_logs(running.owner)] == ["last"]


async def test_files_of_a_running_program_are_brought_up_to_date(runtime: LocalRuntime) -> None:
    files = Files({"index.html": b"old", "gone/page.html": b"x", "kept.html": b"kept"})
    async with started(runtime, Program(files)) as running:
        changes = FileChanges(
            written={"index.html": b"new", "a/b/c.html": b"deep", "gone": b"a file now"},
            deleted=frozenset({"gone/page.html", "never/was"}),
        )
        await runtime.write_files(running.owner, changes)
        for path, content in (("", b"new"), ("a/b/c.html", b"deep"), ("kept.html", b"kept")):
            assert await fetch(f"{running.url}/{path}") == content
        assert await fetch(f"{running.url}/gone") == b"a file now"
        for path in ("../x", "/etc/x", "a/../../x", "a//b", "a\0b", "", "a\\b"):
            with pytest.raises(UnsafePathError):
                await runtime.write_files(
                    running.owner, FileChanges(written={"index.html": b"worse", path: b"x"})
                )
        too_large = FileChanges(written={"large": bytes(LIMITS.storage_bytes + 1)})
        with pytest.raises(FilesTooLargeError):
            await runtime.write_files(running.owner, too_large)
        assert await fetch(running.url) == b"new"
        await runtime.stop(running.owner)
        with pytest.raises(NotRunningError):
            await runtime.write_files(running.owner, changes)


async def test_what_can_not_be_tried_leaves_nothing(runtime: LocalRuntime) -> None:
    for program, error in (
        (Program(Files({"../x": b""})), UnsafePathError),
        (Program(Repository("builtin:static"), snapshot_id="unknown"), SnapshotNotFoundError),
        (
            Program(Repository("builtin:static"), snapshot_id="../../etc/passwd"),
            SnapshotNotFoundError,
        ),
    ):
        with pytest.raises(error):
            await runtime.start(new_owner(), program, LIMITS)
    assert await runtime.list_held("sandbox") == []


async def test_a_large_workspace_is_kept_and_restored(runtime: LocalRuntime) -> None:
    first = new_owner()
    running = await runtime.start(first, OBEDIENT, LIMITS)
    work = """
import hashlib, os
for number in range(3000):
    os.makedirs(f"d{number % 50}", exist_ok=True)
    open(f"d{number % 50}/f{number}", "w").write(str(number))
open("large", "wb").write(os.urandom(50 << 20))
print(hashlib.sha256(open("large", "rb").read()).hexdigest())
"""
    digest = await inside(running, work)
    ended = await runtime.stop(first)
    assert ended.snapshot is not None
    assert ended.snapshot.size_bytes > 50 * MEGABYTE
    async with started(runtime, replace(OBEDIENT, snapshot_id=ended.snapshot.id)) as again:
        look = """
import hashlib, glob
print(hashlib.sha256(open("large", "rb").read()).hexdigest(), len(glob.glob("d*/f*")))
"""
        assert await inside(again, look) == f"{digest} 3000"


async def test_the_environment_reaches_the_program_and_nobody_else(runtime: LocalRuntime) -> None:
    program = replace(OBEDIENT, environment={"GREETING": "hello; world", "PORT": "1"})
    async with started(runtime, program) as running:
        code = "import os; print(os.environ['GREETING'], os.environ['PORT'], os.environ['HOME'])"
        assert await inside(running, code) == "hello; world 8080 /workspace"
        listed = await asyncio.create_subprocess_exec("ps", "axww", stdout=asyncio.subprocess.PIPE)
        assert b"hello; world" not in (await listed.communicate())[0]


async def test_many_visitors_at_once_are_served(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        answers = await asyncio.gather(*(inside(running, f"print({n})") for n in range(100)))
        assert answers == [str(n) for n in range(100)]
        large = await inside(running, "print('x' * 5_000_000)")
        assert len(large) == 5_000_000


async def test_without_walls_it_runs_all_the_same(without_walls: LocalRuntime) -> None:
    runtime = without_walls
    async with started(runtime, Program(Repository("builtin:static"))) as running:
        assert b"<h1>" in await fetch(running.url)
        assert (await runtime.sample(running.owner)).memory_bytes > 0
        ended = await runtime.stop(running.owner)
        assert ended.snapshot is not None
    again = Program(Repository("builtin:static"), snapshot_id=ended.snapshot.id)
    async with started(runtime, again) as restored:
        assert b"<h1>" in await fetch(restored.url)
    exiting = shell('setsid sleep 60 & python3 -m http.server "$PORT" & sleep 1.5; exit 3')
    async with started(runtime, exiting) as running:
        ended = await until_ended(runtime, running.owner)
        assert (ended.reason, ended.exit_code) == ("exited", 3)
    assert isinstance(ended, Ended)
    assert isinstance(running, Running)
