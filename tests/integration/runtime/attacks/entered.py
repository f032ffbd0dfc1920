"""A hostile program turns on those who enter its machine, and harms itself alone."""

import asyncio
import io
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from sandyard.runtime.errors import OperationFailedError, RuntimeUnavailableError
from sandyard.runtime.local.host import processes
from sandyard.runtime.model import Running
from sandyard.runtime.sessions.model import Command
from sandyard.runtime.sessions.ports import Session
from tests.integration.runtime.attacks.others import still_works
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import MEGABYTE, inside, started

_LARGE = 64 * MEGABYTE
_BROKEN = (OperationFailedError, RuntimeUnavailableError)
_ON_EACH_NEW_PROCESS = """
import ctypes, os, signal, threading, time
with open("large", "wb") as file:
    file.truncate({large})
libc = ctypes.CDLL(None, use_errno=True)

def take(pid):
    time.sleep(0.02)  # it has answered by then, and packs
    os.kill(pid, signal.SIGSTOP)
    if libc.ptrace(16, pid, 0, 0) == 0:
        yield "traced it"
    descriptor = os.pidfd_open(pid)
    for number in range(16):
        if libc.syscall(438, descriptor, number, 0) >= 0:
            yield f"took {{number}}"
    for name in ("mem", "maps", "fd", "environ", "root"):
        try:
            (os.listdir if name in ("fd", "root") else open)(f"/proc/{{pid}}/{{name}}")
            yield f"opened {{name}}"
        except OSError:
            pass

def watch(known):
    while True:
        for pid in sorted(set(filter(str.isdigit, os.listdir("/proc"))) - known, key=int):
            try:
                {act}
                open("met", "a").write(pid + "\\n")
            except OSError:
                continue
            known.add(pid)

known = set(filter(str.isdigit, os.listdir("/proc")))
threading.Thread(target=watch, args=(known,), daemon=True).start()
"""
_STOP = _ON_EACH_NEW_PROCESS.format(
    large=_LARGE, act='open("taken", "a").writelines(take(int(pid)))'
)
_KILL = _ON_EACH_NEW_PROCESS.format(large=_LARGE, act="os.kill(int(pid), signal.SIGKILL)")
_COUNT = "import os; print(len(open('met').readlines()) if os.path.exists('met') else 0)"


async def processes_that_it_stops_hold_up_nobody_else(runtime: LocalRuntime, _: Path) -> None:
    """It stops those who pack its files for us: no thread of the server waits for them, and they
    can be neither traced nor robbed."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))
    async with started(runtime) as running:
        await inside(runtime, running, _STOP)
        session = await runtime.session(running.run_id)
        if runtime.has_own_kernel:
            await _nobody_is_met(runtime, running, session)
            return
        held: list[asyncio.Task[bytes]] = []
        async with asyncio.timeout(60):
            while int(await inside(runtime, running, _COUNT)) < 6:
                held = [each for each in held if not each.done()]
                held += [asyncio.create_task(_tar_of(session)) for _ in range(8 - len(held))]
                await asyncio.sleep(0.05)
        async with asyncio.timeout(60):
            await still_works(runtime)
        for each in held:
            each.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        assert await inside(runtime, running, "print(open('taken').read())") == ""


async def what_it_kills_is_never_told_as_whole(runtime: LocalRuntime, _: Path) -> None:
    """It kills those who pack its files for us: each request is answered, with all or an error."""
    async with started(runtime) as running:
        await inside(runtime, running, _KILL)
        session = await runtime.session(running.run_id)
        if runtime.has_own_kernel:
            await _nobody_is_met(runtime, running, session)
            return
        broken = 0
        async with asyncio.timeout(60):
            while broken < 5:
                packed = await asyncio.gather(
                    *(_tar_of(session) for _ in range(4)), return_exceptions=True
                )
                broken += sum(isinstance(each, _BROKEN) for each in packed)
                assert all(_is_whole(each) for each in packed if isinstance(each, bytes))
                with suppress(*_BROKEN):
                    assert "/workspace/large" in [
                        each.path for each in await session.files.list("/workspace")
                    ]


async def a_flood_of_output_takes_little_of_the_host(runtime: LocalRuntime, _: Path) -> None:
    """What reads it is no process of the machine's, so it reads no faster than it may."""
    async with started(runtime) as running:
        session = await runtime.session(running.run_id)
        for _number in range(8):
            await session.processes.start(Command(("yes",)))
        supervisor = runtime.folder_of(running.run_id).supervisor_pid()
        assert supervisor is not None
        loop = asyncio.get_running_loop()
        at, used = loop.time(), processes.cpu_seconds([supervisor])
        while (passed := loop.time() - at) < 4:
            assert (await session.files.stat("app.py")).kind == "file"
            await asyncio.sleep(0.2)
        assert (processes.cpu_seconds([supervisor]) - used) / passed < 0.4


async def a_command_has_no_descriptor_of_ours(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        session = await runtime.session(running.run_id)
        await session.processes.start(Command(("sleep", "60")))
        look = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    if open(f"/proc/{pid}/comm").read() == "sleep\\n":
        print(*(os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")))
"""
        async with asyncio.timeout(20):
            while not (found := await inside(runtime, running, look)):
                await asyncio.sleep(0.05)
        first, *others = found.split()
        assert first == "/dev/null"
        assert [each.partition(":")[0] for each in others] == ["pipe", "pipe"]


async def a_child_of_the_agent_shows_nothing_of_the_host(
    runtime: LocalRuntime, folder: Path
) -> None:
    """One that watches a folder stays; `ps` inside shows its command line."""
    look = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    print(open(f"/proc/{pid}/cmdline").read().replace("\\0", " ").strip())
"""
    async with started(runtime) as running:
        session = await runtime.session(running.run_id)
        watching = session.files.watch("/workspace", ready=(ready := asyncio.Event()))
        assert isinstance(watching, AsyncGenerator)
        change = asyncio.ensure_future(anext(watching))
        await ready.wait()
        lines = (await inside(runtime, running, look)).splitlines()
        await inside(runtime, running, "open('changed', 'w')")
        await change
        await watching.aclose()
        assert not [line for line in lines if str(folder) in line or "supervisor" in line]
        if runtime.has_own_kernel:  # the agent is the machine's own first process
            assert lines[0].startswith("/run/sandyard/agent/loader ")
        else:
            assert "sandyard-agent" in lines
            assert not [line for line in lines if "runtime" in line]


async def _nobody_is_met(runtime: LocalRuntime, running: Running, session: Session) -> None:
    """Those who pack its files are outside of a kernel of its own."""
    packed = await asyncio.gather(*(_tar_of(session) for _ in range(8)))
    assert all(map(_is_whole, packed))
    assert await inside(runtime, running, _COUNT) == "0"


async def _tar_of(session: Session) -> bytes:
    pieces: AsyncIterator[bytes] = session.files.read_tar("/workspace")
    return b"".join([piece async for piece in pieces])


def _is_whole(packed: bytes) -> bool:
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return archive.getmember("large").size == _LARGE
