"""A hostile program takes more than its share, and gets no more."""

import asyncio
import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
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
        if runtime.has_own_kernel:  # its processes are memory of the one that the host sees
            await send(runtime, running, code)
            assert (await until_ended(runtime, running.run_id)).reason == "out_of_memory"
            return
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
        if runtime.has_own_kernel:
            await send(runtime, running, code)
            assert (await until_ended(runtime, running.run_id)).reason == "out_of_memory"
            return
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
        if runtime.has_own_kernel:  # `/tmp` is on its disk, which no file may fill alone
            assert (await inside(runtime, running, code)).split() == [
                str(errno.EFBIG),
                str(errno.ENOSPC),
            ]
            return
        await send(runtime, running, code)
        # Each is full at half of the memory; together they are more than there is beside ours.
        assert (await until_ended(runtime, running.run_id)).reason == "out_of_memory"
        await still_works(runtime)


async def memory_of_nobody_is_not_given(runtime: LocalRuntime, _: Path) -> None:
    if os.uname().machine != "x86_64":
        return
    async with started(runtime) as running:
        if runtime.has_own_kernel:  # there it is memory of the machine, and counted
            code = "import os\nwhile True: os.write(os.memfd_create('x'), bytes(8 << 20))"
            await send(runtime, running, code)
            assert (await until_ended(runtime, running.run_id)).reason == "out_of_memory"
            return
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
        has_none, *others = (await inside(runtime, running, _CALL + code)).split()
        assert has_none == str(not runtime.has_own_kernel)
        assert others == ["True"] * 4


async def its_terminals_are_bounded(runtime: LocalRuntime, _: Path) -> None:
    """All terminals of the host have one limit; a kernel of its own has terminals of its own."""
    code = """
import errno, os
opened = []
try:
    for _ in range(3000):
        opened.append(os.openpty())
except OSError as error:
    print(errno.errorcode[error.errno], len(opened))
for pair in opened:
    for end in pair:
        os.close(end)
print(os.isatty(os.openpty()[1]))
"""
    async with started(runtime) as running:
        refused, count, is_terminal = (await inside(runtime, running, code)).split()
        assert is_terminal == "True"
        if runtime.has_own_kernel:
            assert (refused, int(count) <= 2048) == ("EMFILE", True)
            assert not _terminals(runtime.processes_of(running.run_id))
        else:
            assert (refused, count) == ("ENOSPC", "64")


async def it_keeps_to_its_processors(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        code = """
import os
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
    print("set", len(os.sched_getaffinity(0)))
except PermissionError:
    print("refused", len(os.sched_getaffinity(0)))
"""
        set_there = "set" if runtime.has_own_kernel else "refused"
        assert await inside(runtime, running, code) == f"{set_there} 1"
        for pid, name in runtime.processes_of(running.run_id).items():
            assert len(os.sched_getaffinity(pid)) == 1, name


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
        if runtime.has_own_kernel:  # it shows a value of its own; what counts is the host's
            kernel = [
                pid for pid, name in runtime.processes_of(running.run_id).items() if name == "exe"
            ]
            scores = [Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in kernel]
            assert set(scores) == {"1000\n"}
            return
        assert first == "1000"
        assert last == "1000" or not _has_capability(_CAP_SYS_RESOURCE)


def _terminals(pids: Iterable[int]) -> list[str]:
    """Those of the host that these processes have open."""
    opened = []
    for descriptor in chain.from_iterable(Path(f"/proc/{pid}/fd").iterdir() for pid in pids):
        with suppress(OSError):
            opened.append(str(descriptor.readlink()))
    return [each for each in opened if each.startswith(("/dev/ptmx", "/dev/pts"))]


def _has_capability(number: int) -> bool:
    status = Path("/proc/self/status").read_text()
    [effective] = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    return bool(int(effective, 16) >> number & 1)
