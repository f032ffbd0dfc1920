"""What programs on this machine are given and held to, besides what every runtime promises."""

import asyncio
import signal
from contextlib import suppress
from dataclasses import replace

import pytest

from sandyard.runtime.errors import NotRunningError
from sandyard.runtime.model import (
    Ended,
    Program,
    Repository,
    Running,
    Stopping,
)
from sandyard.runtime.sessions.model import Command, TerminalSize
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import (
    LIMITS,
    MEGABYTE,
    OBEDIENT,
    inside,
    new_run_id,
    shell,
    started,
    until_ended,
)

AT_GO = "while [ ! -e go ]; do sleep 0.05; done;"
"""In a program: what follows waits until the test says `go`."""


def go(runtime: LocalRuntime, running: Running) -> None:
    (runtime.workspace_of(running.run_id) / "go").touch()


async def test_the_python_template_keeps_what_it_was_sent(runtime: LocalRuntime) -> None:
    program = Program(Repository("builtin:python-web"))
    async with started(runtime, program) as running:
        await runtime.fetch(running, b"name=Ada")
        snapshot = (await runtime.stop(running.run_id)).snapshot
    assert snapshot is not None
    async with started(runtime, replace(program, snapshot_id=snapshot.id)) as again:
        assert b"<li>Ada</li>" in await runtime.fetch(again)


async def test_it_is_known_to_end_before_its_streams_are_cut(runtime: LocalRuntime) -> None:
    """A client whose stream is cut asks whether the sandbox is still there."""
    async with started(runtime) as running:
        session = await runtime.session(running.run_id)
        stream = await session.ports.connect(running.port)
        stopping = asyncio.ensure_future(runtime.stop(running.run_id))
        with suppress(ConnectionResetError):  # an end like any other
            assert await stream.reader.read() == b""
        with pytest.raises(NotRunningError):
            await runtime.session(running.run_id)
        assert isinstance(await runtime.find(running.run_id), Stopping | Ended)
        ended = await stopping
        assert (ended.reason, ended.message) == ("stopped", "It was stopped.")
        stream.writer.close()


async def test_a_shell_is_hung_up_when_nobody_is_attached_any_more(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        processes = (await runtime.session(running.run_id)).processes
        shell = await processes.start(
            Command(("sh",), terminal=TerminalSize(), unattended_sec=1, tag="shell")
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(2):
                async for _ in processes.output(shell.id, follow=True):
                    pass
        assert (await processes.get(shell.id)).is_running, "somebody was attached"
        ended = await processes.wait(shell.id, timeout_sec=30)
        assert ended.exit_code == 128 + signal.SIGHUP
        forgotten = await processes.start(Command(("sleep", "600"), unattended_sec=0.1))
        assert not (await processes.wait(forgotten.id, timeout_sec=30)).is_running


async def test_a_sample_is_of_the_real_processes(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        before = await runtime.sample(running.run_id)
        work = """
import os, time
held = bytearray(os.urandom(1 << 20) * 60)
open("stored", "wb").write(os.urandom(20 << 20))
until = time.process_time() + 0.5
while time.process_time() < until:
    pass
__import__("builtins").held = held
"""
        await inside(runtime, running, work)
        after = await runtime.sample(running.run_id)
        assert 0.4 < after.cpu_seconds - before.cpu_seconds < 5
        assert 55 * MEGABYTE < after.memory_bytes - before.memory_bytes < 80 * MEGABYTE
        assert 19 * MEGABYTE < after.storage_bytes - before.storage_bytes < 22 * MEGABYTE
        assert before.at < after.at


async def test_a_large_workspace_is_kept_and_restored(runtime: LocalRuntime) -> None:
    first = new_run_id()
    running = await runtime.start(first, OBEDIENT, LIMITS)
    work = """
import hashlib, os
for number in range(3000):
    os.makedirs(f"d{number % 50}", exist_ok=True)
    open(f"d{number % 50}/f{number}", "w").write(str(number))
open("large", "wb").write(os.urandom(50 << 20))
print(hashlib.sha256(open("large", "rb").read()).hexdigest())
"""
    digest = await inside(runtime, running, work)
    ended = await runtime.stop(first)
    assert ended.snapshot is not None
    assert ended.snapshot.size_bytes > 50 * MEGABYTE
    async with started(runtime, replace(OBEDIENT, snapshot_id=ended.snapshot.id)) as again:
        look = """
import hashlib, glob
print(hashlib.sha256(open("large", "rb").read()).hexdigest(), len(glob.glob("d*/f*")))
"""
        assert await inside(runtime, again, look) == f"{digest} 3000"


async def test_the_environment_reaches_the_program_and_nobody_else(runtime: LocalRuntime) -> None:
    program = replace(OBEDIENT, environment={"GREETING": "hello; world", "PORT": "1"})
    async with started(runtime, program) as running:
        code = "import os; print(os.environ['GREETING'], os.environ['PORT'], os.environ['HOME'])"
        assert await inside(runtime, running, code) == "hello; world 8080 /workspace"
        listed = await asyncio.create_subprocess_exec("ps", "axww", stdout=asyncio.subprocess.PIPE)
        assert b"hello; world" not in (await listed.communicate())[0]


async def test_many_connections_at_once_are_served(runtime: LocalRuntime) -> None:
    # Its server has a thread for each.
    roomy = replace(LIMITS, processes=256, memory_bytes=4096 * MEGABYTE)
    async with started(runtime, limits=roomy) as running:
        answers = await asyncio.gather(*(runtime.fetch(running) for _ in range(100)))
        assert set(answers) == {b"at your service"}
        large = await inside(runtime, running, "print('x' * 5_000_000)")
        assert len(large) == 5_000_000


async def test_without_isolation_it_runs_all_the_same(not_isolated: LocalRuntime) -> None:
    runtime = not_isolated
    async with started(runtime, Program(Repository("builtin:static"))) as running:
        assert b"<h1>" in await runtime.fetch(running)
        assert (await runtime.sample(running.run_id)).memory_bytes > 0
        ended = await runtime.stop(running.run_id)
        assert ended.snapshot is not None
    again = Program(Repository("builtin:static"), snapshot_id=ended.snapshot.id)
    async with started(runtime, again) as restored:
        assert b"<h1>" in await runtime.fetch(restored)
    exiting = shell(f'setsid sleep 60 & python3 -m http.server "$PORT" & {AT_GO} exit 3')
    async with started(runtime, replace(exiting, policy="ends_machine")) as running:
        go(runtime, running)
        ended = await until_ended(runtime, running.run_id)
        assert (ended.reason, ended.exit_code) == ("exited", 3)
    assert isinstance(ended, Ended)
    assert isinstance(running, Running)
