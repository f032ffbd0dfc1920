"""A hostile program stores more than its share, where nobody should see it."""

from dataclasses import replace
from pathlib import Path

from sandyard.runtime.model import Limits, Running
from tests.integration.runtime.attacks.others import still_works
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import (
    LIMITS,
    MEGABYTE,
    OBEDIENT,
    inside,
    send,
    started,
    until_ended,
)

SMALL = replace(LIMITS, storage_bytes=40 * MEGABYTE)
FILES = """
import builtins, errno, mmap, os, socket, threading, time

def files():
    for number in range(12):
        file = open(f"f{number}", "w+b")
        file.write(os.urandom(5 << 20))
        file.flush()
        yield file

def unlinked_files():
    for file in files():
        os.unlink(file.name)
        yield file

builtins.held = []
try:
    %s
    print("stored it")
except OSError as error:
    print(errno.errorcode[error.errno])
"""
KEPT = FILES % "held.extend(files())"
UNLINKED = FILES % "held.extend(unlinked_files())"
MAPPED = FILES % "held.extend(mmap.mmap(file.fileno(), 5 << 20) for file in unlinked_files())"
IN_FLIGHT = FILES % (
    "held.extend(socket.socketpair() for _ in range(12)); "
    "[socket.send_fds(pair[0], [b'x'], [file.fileno()]) "
    "for pair, file in zip(held, unlinked_files())]"
)


async def is_refused_more(
    runtime: LocalRuntime, running: Running, code: str, *, limits: Limits = SMALL
) -> None:
    """In a file system of its own there is no room for more, and it goes on; where a watchdog
    looks, it is ended."""
    if runtime.volume_of(running.run_id) == "folder":
        await send(runtime, running, code + "\ntime.sleep(30)")
        assert (await until_ended(runtime, running.run_id)).reason == "out_of_storage"
    else:
        assert await inside(runtime, running, code) == "ENOSPC"
        assert isinstance(await runtime.refresh(running.run_id), Running)
        stored = (await runtime.sample(running.run_id)).storage_bytes
        assert 30 * MEGABYTE < stored <= limits.storage_bytes * 1.15


async def it_stores_no_more_than_its_share(runtime: LocalRuntime, _: Path) -> None:
    one_file = """
try:
    with open("large", "wb") as file:
        for _ in range(60):
            file.write(bytes(1 << 20))
    print("stored it")
except OSError as error:
    print("refused")
"""
    async with started(runtime, OBEDIENT, SMALL) as running:
        assert await inside(runtime, running, one_file) == "refused"
    for code in (KEPT, UNLINKED):
        async with started(runtime, OBEDIENT, SMALL) as running:
            await is_refused_more(runtime, running, code)
    await still_works(runtime)


async def a_deleted_file_that_is_mapped_counts(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime, OBEDIENT, SMALL) as running:
        await is_refused_more(runtime, running, MAPPED)


async def a_deleted_file_of_a_thread_whose_process_seems_gone_counts(
    runtime: LocalRuntime, _: Path
) -> None:
    """The first thread ends, another holds the files."""
    code = """
import ctypes, os, platform, threading, time
if os.fork() == 0:
    def hold():
        held = []
        try:
            for number in range(12):
                held.append(open(f"f{number}", "wb"))
                os.unlink(f"f{number}")
                held[-1].write(os.urandom(5 << 20))
                held[-1].flush()
        except OSError as error:
            with open("/tmp/half", "w") as told:
                told.write("ENOSPC" if error.errno == 28 else str(error))
            os.rename("/tmp/half", "/tmp/told")
        threading.Event().wait()
    threading.Thread(target=hold).start()
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
while not os.path.exists("/tmp/told"):
    time.sleep(0.02)
print(open("/tmp/told").read())
"""
    async with started(runtime, OBEDIENT, SMALL) as running:
        await is_refused_more(runtime, running, code)


async def a_deleted_file_on_its_way_counts(runtime: LocalRuntime, _: Path) -> None:
    """Its descriptor is in a socket, where nobody can see it: only a file system of its own holds
    there."""
    async with started(runtime, OBEDIENT, SMALL) as running:
        if runtime.volume_of(running.run_id) != "folder":
            await is_refused_more(runtime, running, IN_FLIGHT)


async def many_empty_files_are_bounded(runtime: LocalRuntime, _: Path) -> None:
    code = """
import errno, os
try:
    for number in range(100_000):
        os.mknod(f"n{number}")
    print("made them")
except OSError as error:
    print(errno.errorcode[error.errno], number)
"""
    async with started(runtime, OBEDIENT, SMALL) as running:
        if runtime.volume_of(running.run_id) == "folder":
            await send(runtime, running, code)
            assert (await until_ended(runtime, running.run_id)).reason == "out_of_storage"
        else:
            told, number = (await inside(runtime, running, code)).split()
            assert told == "ENOSPC"
            assert int(number) < 6000
