"""A hostile program takes more than its share, and gets no more."""

import asyncio
import errno
import os
from pathlib import Path

from sandyard.runtime.model import Running
from tests.integration.runtime.attacks.others import still_works
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import (
    LIMITS,
    inside,
    send,
    started,
    until_ended,
)

_CAP_SYS_RESOURCE = 24
_CALL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    return "got in" if libc.syscall(number, *arguments) >= 0 else ctypes.get_errno()
"""


async def it_forks_without_end_in_vain(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        code = """
import os, time
made = 0
try:
    for made in range(10000):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
except BlockingIOError:
    print(made)
"""
        assert 4 <= int(await inside(runtime, running, code)) <= LIMITS.processes
        await still_works(runtime)
        ended = await runtime.stop(running.run_id)
        assert ended.reason == "stopped"


async def a_fork_bomb_ends_with_its_sandbox(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        bomb = "import subprocess; subprocess.Popen('bomb() { bomb | bomb & }; bomb', shell=True)"
        await send(runtime, running, bomb)
        await asyncio.sleep(0.5)
        ended = await runtime.stop(running.run_id)
        assert ended.reason in ("stopped", "exited")
        await still_works(runtime)


async def one_process_takes_no_more_memory_than_its_share(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        code = """
try:
    taken = bytearray(300 << 20)
    print("took it")
except MemoryError:
    print("refused")
"""
        assert await inside(runtime, running, code) == "refused"
        assert isinstance(await runtime.refresh(running.run_id), Running)


async def many_processes_take_no_more_either(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        code = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        taken = bytearray(os.urandom(1 << 20) * 60)
        time.sleep(60)
"""
        await send(runtime, running, code)
        assert (await until_ended(runtime, running.run_id)).reason == "out_of_memory"
        await still_works(runtime)


async def memory_that_is_shared_and_hidden_is_found(runtime: LocalRuntime, _: Path) -> None:
    """Shared pages that are touched and then dropped from the tables are in no process's sum."""
    async with started(runtime) as running:
        code = """
import mmap, time
held = []
for _ in range(40):
    shared = mmap.mmap(-1, 50 << 20)
    shared.write(bytes(50 << 20))
    shared.madvise(mmap.MADV_DONTNEED)
    held.append(shared)
time.sleep(60)
"""
        await send(runtime, running, code)
        assert (await until_ended(runtime, running.run_id)).reason == "out_of_memory"


async def folders_in_memory_are_bounded(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        code = """
for place in ("/tmp/x", "/dev/shm/x"):
    try:
        with open(place, "wb") as file:
            for _ in range(400):
                file.write(bytes(1 << 20))
        print("took it")
    except OSError as error:
        print(error.errno)
"""
        await send(runtime, running, code)
        # Each is full at half of the memory; together they are more than there is beside ours.
        assert (await until_ended(runtime, running.run_id)).reason == "out_of_memory"
        await still_works(runtime)


async def memory_of_nobody_is_not_given(runtime: LocalRuntime, _: Path) -> None:
    if os.uname().machine != "x86_64":
        return
    async with started(runtime) as running:
        memfd, shmget, io_uring, keyctl, io_setup, vmsplice = 319, 29, 425, 250, 206, 278
        code = (
            _CALL
            + f"""
print(call({memfd}, b"x", 0), call({shmget}, 0, 1 << 20, 0o1600))
print(call({io_uring}, 1, 0), call({keyctl}, 0, -3, 1))
print(call({io_setup}, 1, ctypes.byref(ctypes.c_ulong(0))), call({vmsplice}, 1, 0, 0, 0))
"""
        )
        assert (await inside(runtime, running, code)).split() == [str(errno.ENOSYS)] * 6


async def a_database_does_without_asynchronous_io(runtime: LocalRuntime, _: Path) -> None:
    """As InnoDB does: it tries the kernel's, and uses its own threads if there is none. SQLite has
    its files mapped and its log beside them."""
    code = """
import errno, os, platform, sqlite3
io_setup = {"x86_64": 206, "aarch64": 0}[platform.machine()]
print(call(io_setup, 128, ctypes.byref(ctypes.c_ulong(0))) == errno.ENOSYS)
data = os.open("data", os.O_RDWR | os.O_CREAT)
print(os.pwrite(data, b"page" * 1024, 4096) == 4096, os.fsync(data) is None)
database = sqlite3.connect("database")
database.execute("PRAGMA mmap_size = 1048576")
print(database.execute("PRAGMA journal_mode = wal").fetchone()[0] == "wal")
database.execute("CREATE TABLE pages AS SELECT 1 AS number")
database.commit()
print(sqlite3.connect("database").execute("SELECT number FROM pages").fetchone() == (1,))
"""
    async with started(runtime) as running:
        assert (await inside(runtime, running, _CALL + code)).split() == ["True"] * 5


async def its_terminals_are_bounded(runtime: LocalRuntime, _: Path) -> None:
    """All terminals of the host have one limit."""
    code = """
import errno, os
opened = []
try:
    for _ in range(100):
        opened.append(os.openpty())
except OSError as error:
    print(errno.errorcode[error.errno], len(opened))
for pair in opened:
    for end in pair:
        os.close(end)
print(os.isatty(os.openpty()[1]))
"""
    async with started(runtime) as running:
        assert (await inside(runtime, running, code)).split() == ["ENOSPC", "64", "True"]


async def it_keeps_to_its_processors(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        code = """
import os
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
except PermissionError:
    print("refused", len(os.sched_getaffinity(0)))
"""
        assert await inside(runtime, running, code) == "refused 1"


async def the_kernel_takes_it_before_the_server(runtime: LocalRuntime, _: Path) -> None:
    """When the host runs out of memory. What the server may say for good, it can't take back."""
    async with started(runtime) as running:
        code = """
path = "/proc/self/oom_score_adj"
print(open(path).read().strip())
try:
    with open(path, "w") as score:
        score.write("0")
except OSError:
    pass
print(open(path).read().strip())
"""
        first, last = (await inside(runtime, running, code)).split()
        assert first == "1000"
        assert last == "1000" or not _has_capability(_CAP_SYS_RESOURCE)


def _has_capability(number: int) -> bool:
    status = Path("/proc/self/status").read_text()
    [effective] = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    return bool(int(effective, 16) >> number & 1)
