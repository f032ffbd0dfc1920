"""Memory and processes of a machine with its own kernel, kept in its snapshot."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.runtime.errors import InputClosedError, MemoryNotKeptError
from sandyard.runtime.images.library import ImageLibrary
from sandyard.runtime.images.registry import Registries
from sandyard.runtime.local.gvisor.memory_images import find_memory
from sandyard.runtime.local.root_filesystems.images import IMAGES
from sandyard.runtime.local.root_filesystems.store import RootFilesystems
from sandyard.runtime.local.server.machines import LocalMachines
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Ended, Limits, MachineSpec, Program, RunId, Snapshot
from sandyard.runtime.sessions.model import Command, Process, TerminalSize
from sandyard.runtime.sessions.ports import Session
from sandyard.runtime.store.archives import ArchiveFolder
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.root_file_systems import (
    docker_archive,
    gzipped,
    image_config,
    member,
    small_root,
    tar,
)
from tests.support.runtime.sessions import pieces, shell

LIMITS = Limits(
    cpu=1, memory_bytes=256 << 20, processes=64, storage_bytes=64 << 20, max_running_sec=600
)
# Each line has a count, and what it holds in memory; a file has the same count at any moment.
COUNT = """
import os, time
held = bytearray(b"x" * (32 << 20))
for count in range(10_000):
    with open("new", "w") as file:
        print(count, file=file)
    os.replace("new", "count")
    print(count, len(held), flush=True)
    time.sleep(0.05)
"""
TALK = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", 4000))
ours = socket.create_connection(("127.0.0.1", 4000))
theirs, _ = listener.accept()
while line := sys.stdin.readline():
    ours.sendall(line.encode())
    print(theirs.recv(100).decode(), end="", flush=True)
sys.exit(7)
"""
STORY = b"first\nsecond\n"
READ = "exec 3</etc/story; read line <&3; echo $line; read go; read line <&3; echo $line"
HOLD_DELETED = "import os, time; f = open('gone', 'w'); os.unlink('gone'); time.sleep(60)"


def run_id(attempt: int) -> RunId:
    return RunId("sandbox", "box", str(attempt))


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[LocalMachines]:
    machines = LocalMachines(tmp_path / "runtime", LocalOptions(), SystemClock())
    yield machines
    for each in await machines.run_ids("sandbox"):
        await machines.stop(each)
        await ended(machines, each)


async def ended(machines: LocalMachines, run: RunId) -> Ended:
    async with asyncio.timeout(40):
        while not isinstance(state := await machines.refresh(run), Ended):
            await asyncio.sleep(0.02)
    return state


async def start(machines: LocalMachines, attempt: int, **chosen: Any) -> Session:
    spec = MachineSpec(LIMITS, 600, isolation="gvisor", **chosen)
    await machines.create(run_id(attempt), spec)
    return await machines.session(run_id(attempt))


def python(code: str, **chosen: Any) -> Command:
    return Command(("python3", "-c", code), **chosen)


async def next_line(session: Session, process: Process, *, beyond: int = -1) -> tuple[int, int]:
    """The first line of the counter with a count beyond this one."""
    written = b""
    async with asyncio.timeout(20):
        async for output in session.processes.output(process.id, follow=True):
            written += output.data
            for line in written.splitlines(keepends=True):
                if line.endswith(b"\n") and int(line.split()[0]) > beyond:
                    count, held = line.split()
                    return int(count), int(held)
    raise AssertionError(written)


async def until_said(session: Session, process: Process, wanted: bytes) -> None:
    written = b""
    try:
        async with asyncio.timeout(20):
            async for output in session.processes.output(process.id, follow=True):
                written += output.data
                if wanted in written:
                    return
    except TimeoutError:
        pass
    raise AssertionError(written)


@asynccontextmanager
async def followed(session: Session, process: Process) -> AsyncIterator["asyncio.Task[int]"]:
    """A follower; its result is how much it got until the stream ended."""

    async def follow() -> int:
        return sum(
            [len(each.data) async for each in session.processes.output(process.id, follow=True)]
        )

    task = asyncio.ensure_future(follow())
    yield task
    task.cancel()


async def test_processes_go_on_after_a_pause_with_what_they_had_in_memory(
    machines: LocalMachines,
) -> None:
    session = await start(machines, 1)
    counter = await session.processes.start(python(COUNT))
    talker = await session.processes.start(python(TALK, has_input=True))
    terminal = await session.processes.start(
        Command(("sh",), terminal=TerminalSize(80, 24), environment={"PS1": "$ "})
    )
    await session.processes.write_input(talker.id, b"before\n")
    await until_said(session, talker, b"before\n")
    await session.processes.write_input(terminal.id, b'kept=in-a-variable; echo s""et\n')
    await until_said(session, terminal, b"set\r\n")
    before, _ = await next_line(session, counter, beyond=5)
    async with followed(session, counter) as follower:
        await machines.stop(run_id(1), has_memory=True)
        paused = await ended(machines, run_id(1))
        async with asyncio.timeout(5):
            with pytest.raises(Exception, match="not running"):
                await follower
    assert paused.reason == "stopped"
    snapshot = paused.snapshot
    assert isinstance(snapshot, Snapshot)

    session = await start(machines, 2, snapshot_id=snapshot.id)
    at_pause = int(await shell(session, "sleep 0.3; cat count"))
    again = {each.id: each for each in await session.processes.list()}
    assert again[counter.id].pid == counter.pid
    after, held = await next_line(session, counter)
    assert held == 32 << 20
    assert before < after <= at_pause + 20
    await session.processes.write_input(talker.id, b"over a connection that was kept\n")
    await until_said(session, talker, b"over a connection that was kept\n")
    await session.processes.write_input(terminal.id, b"echo it is $kept\n")
    await until_said(session, terminal, b"it is in-a-variable")
    await session.processes.close_input(talker.id)
    assert (await session.processes.wait(talker.id, timeout_sec=20)).exit_code == 7
    with pytest.raises(InputClosedError):
        await session.processes.write_input(talker.id, b"more")


async def test_copies_of_a_running_machine_have_its_processes(machines: LocalMachines) -> None:
    session = await start(machines, 1)
    counter = await session.processes.start(python(COUNT))
    before, _ = await next_line(session, counter, beyond=3)
    packed = machines.records.path_of(run_id(1)).parents[3] / "packed"
    async with followed(session, counter) as follower:
        assert await machines.pack(run_id(1), packed, has_memory=True)
        after, _ = await next_line(session, counter, beyond=before + 20)
        assert not follower.done()
    for attempt in (2, 3):
        copy = await start(machines, attempt, packed=packed)
        count, held = await next_line(copy, counter)
        assert (before < count < after + 50, held) == (True, 32 << 20)
        await copy.processes.signal(counter.id, 9)
        assert (await copy.processes.wait(counter.id, timeout_sec=20)).signal == 9
    assert (await session.processes.get(counter.id)).exit_code is None
    from_files = await start(machines, 4, packed=packed, restores_memory=False)
    assert await from_files.processes.list() == []
    assert before < int(await shell(from_files, "cat count")) < after + 50


async def test_a_machine_that_can_not_be_kept_goes_on(machines: LocalMachines) -> None:
    session = await start(machines, 1)
    process = await session.processes.start(python(HOLD_DELETED))
    await shell(session, "sleep 1")
    with pytest.raises(MemoryNotKeptError, match="workspace/gone"):
        await machines.stop(run_id(1), has_memory=True)
    assert (await session.processes.get(process.id)).exit_code is None
    assert await shell(session, "echo works") == b"works\n"
    await session.processes.signal(process.id, 9)
    await session.processes.wait(process.id)
    await machines.stop(run_id(1), has_memory=True)
    assert (await ended(machines, run_id(1))).snapshot is not None


async def suspended_reader(machines: LocalMachines, root: str) -> tuple[str, Process]:
    """A machine that was stopped while a process held a file of its root open, half read."""
    session = await start(machines, 1, root=root)
    reader = await session.processes.start(Command(("/bin/sh", "-c", READ), has_input=True))
    await until_said(session, reader, b"first\n")
    await machines.stop(run_id(1), has_memory=True)
    snapshot = (await ended(machines, run_id(1))).snapshot
    assert isinstance(snapshot, Snapshot)
    return snapshot.id, reader


async def test_processes_go_on_after_their_image_was_removed_and_unpacked_again(
    machines: LocalMachines, tmp_path: Path
) -> None:
    image_id = "img-" + "a" * 17
    layer = gzipped(tar(*small_root(), member("etc/story", STORY)))
    (tmp_path / "image.tar").write_bytes(docker_archive(layer, config=image_config()))
    library = ImageLibrary(ArchiveFolder(tmp_path / "runtime" / IMAGES), Registries())
    source = tmp_path / "image.tar"
    await library.add(image_id, source, most_bytes=1 << 30, progress=lambda *_: None)
    snapshot_id, reader = await suspended_reader(machines, image_id)
    roots = RootFilesystems(tmp_path / "runtime")
    before = roots.get(image_id)
    roots.remove_images([image_id], unused_since=SystemClock().now() + 1)
    assert list((tmp_path / "runtime/environments/roots").iterdir()) == []
    session = await start(machines, 2, snapshot_id=snapshot_id, root=image_id)
    assert roots.get(image_id).root == before.root
    await session.processes.write_input(reader.id, b"go on\n")
    await until_said(session, reader, b"second\n")


async def test_processes_do_not_go_on_with_other_files_than_they_have_loaded(
    machines: LocalMachines, tmp_path: Path
) -> None:
    roots, source = RootFilesystems(tmp_path / "runtime"), tmp_path / "root.tar"

    def imported(story: bytes) -> None:
        source.write_bytes(tar(*small_root(), member("etc/story", story)))
        roots.add("own", source, now=1.0)

    imported(STORY)
    snapshot_id, reader = await suspended_reader(machines, "own")
    imported(b"")
    from_files = await start(machines, 2, snapshot_id=snapshot_id, root="own")
    assert await from_files.processes.list() == []
    log = await machines.read_log(run_id(2), None)
    assert b"other versions of their programs" in log.content
    imported(STORY)
    session = await start(machines, 3, snapshot_id=snapshot_id, root="own")
    await session.processes.write_input(reader.id, b"go on\n")
    await until_said(session, reader, b"second\n")


async def test_at_its_deadline_it_is_kept_and_one_that_can_not_go_on_starts_from_its_files(
    machines: LocalMachines,
) -> None:
    session = await start(machines, 1)
    deadline_at = SystemClock().now() + 3
    await machines.set_deadline(run_id(1), deadline_at, keeps_memory=True)
    counter = await session.processes.start(python(COUNT))
    await next_line(session, counter)
    timed_out = await ended(machines, run_id(1))
    assert timed_out.reason == "timeout"
    assert deadline_at <= timed_out.ended_at < deadline_at + 5
    assert timed_out.snapshot is not None
    snapshot = machines.records.path_of(run_id(1)).parents[3] / "snapshots/sandbox.box.1.snapshot"
    image = find_memory(snapshot)
    assert image is not None
    damage(snapshot, at=image.begins_at + 100_000)
    session = await start(machines, 2, snapshot_id=timed_out.snapshot.id)
    assert await session.processes.list() == []
    assert int(await shell(session, "cat count")) > 3
    log = await machines.read_log(run_id(2), None)
    assert b"the processes of the last run could not go on" in log.content


def damage(path: Path, *, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(4096))


@pytest.mark.parametrize(
    "after_sec",
    [0.3, *(pytest.param(each, marks=pytest.mark.torture) for each in (0.05, 0.6, 1.0, 1.5, 2.5))],
)
async def test_a_supervisor_killed_while_it_pauses_leaves_a_complete_snapshot(
    after_sec: float, tmp_path: Path
) -> None:
    """With the processes or without them; never a part of it."""
    runtime = LocalRuntime(tmp_path / "runtime", LocalOptions(isolation="gvisor"))
    await runtime.start(run_id(1), Program(None), LIMITS)
    session = await runtime.session(run_id(1))
    await session.files.write("kept", pieces(b"content"))
    await session.processes.start(python(COUNT))
    stopping = asyncio.ensure_future(runtime.stop(run_id(1), has_memory=True))
    await asyncio.sleep(after_sec)
    if (pid := runtime.folder_of(run_id(1)).supervisor_pid()) is not None:
        os.kill(pid, signal.SIGKILL)
    await asyncio.wait([stopping])
    async with asyncio.timeout(60):
        while not isinstance(over := await runtime.refresh(run_id(1)), Ended):
            await asyncio.sleep(0.05)
    assert over.snapshot is not None, over
    await runtime.start(run_id(2), Program(None, over.snapshot.id), LIMITS)
    again = await runtime.session(run_id(2))
    assert await shell(again, "cat kept") == b"content"
    assert len(await again.processes.list()) == 1 + over.snapshot.has_memory
    await runtime.stop(run_id(2))
    if stopping.exception() is None:  # else its caller was told that nothing is known
        assert stopping.result().snapshot == over.snapshot
