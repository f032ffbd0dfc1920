"""A hostile program takes memory where a sum over processes does not see it.

A kernel of its own (gVisor) has all of it in one file, whatever it is for."""

import os
from pathlib import Path

from sandyard.runtime.model import Running
from tests.integration.runtime.attacks.others import still_works
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import inside, send, started, until_ended

MADE_WITHOUT_A_LEADER = """
import ctypes, os, platform, threading, time
EXIT_THREAD = {"x86_64": 60, "aarch64": 93}[platform.machine()]
for _ in range(4):
    if os.fork() == 0:
        def hold():
            held = bytearray(b"x" * (90 << 20))
            time.sleep(60)
        threading.Thread(target=hold).start()
        ctypes.CDLL(None).syscall(EXIT_THREAD, 0)
"""
BEHIND_LARGE_MAPS = """
import ctypes, mmap, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
many = libc.mmap(None, 4096 * 60000, 1, 0x22, -1, 0)
for number in range(0, 60000, 2):
    libc.mprotect(many + 4096 * number, 4096, 0)
held = []
for _ in range(40):
    shared = mmap.mmap(-1, 50 << 20)
    shared.write(bytes(50 << 20))
    shared.madvise(mmap.MADV_DONTNEED)
    held.append(shared)
time.sleep(60)
"""
BUT_FOR_ONE_PAGE = """
import ctypes, mmap, time
libc = ctypes.CDLL(None, use_errno=True)
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
held = []
for _ in range(40):
    shared = mmap.mmap(-1, 50 << 20)
    shared.write(bytes(50 << 20))
    begin = ctypes.addressof(ctypes.c_char.from_buffer(shared))
    libc.munmap(begin + 4096, (50 << 20) - 4096)
    held.append(shared)
time.sleep(60)
"""
BEHIND_A_ZOMBIE = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os._exit(0)
for folder in ("/tmp", "/dev/shm"):
    with open(f"{folder}/x", "wb") as file:
        for _ in range(125):
            file.write(bytes(1 << 20))
time.sleep(60)
"""

UNREAD = """
import os, socket, time
for number in range(8):
    if os.fork() == 0:
        held = []
        for _ in range(900):
            sender, receiver = socket.socketpair()
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
            sender.setblocking(False)
            try:
                while True:
                    sender.send(bytes(65536))
            except BlockingIOError:
                pass
            held += [receiver] if number % 2 else [receiver, sender]
        time.sleep(60)
"""

IN_PIPES = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        held = []
        for _ in range(1500):
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            try:
                while True:
                    os.write(writer, bytes(4096))
            except BlockingIOError:
                pass
            os.close(writer)
            held.append(reader)
        time.sleep(60)
"""

IN_LARGE_BUFFERS = """
import socket, time
held = []
for _ in range(100):
    sender, receiver = pair = socket.socketpair()
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 20)
    sender.setblocking(False)
    try:
        while True:
            sender.send(bytes(65536))
    except BlockingIOError:
        pass
    held += pair
time.sleep(60)
"""

CHAIN = """
import mmap, os, time
shared = [mmap.mmap(-1, 60 << 20) for _ in range(6)]
for each in shared:
    each.write(bytes(60 << 20))
for _ in range(10_000):
    if os.fork():
        time.sleep(0.003)
        os._exit(0)
time.sleep(60)
"""


EPOLL = """
import os, select, socket, time
for _ in range(24):
    if os.fork() == 0:
        sockets = [socket.socket() for _ in range(1900)]
        polls = [select.epoll() for _ in range(200)]
        for poll in polls:
            for each in sockets:
                poll.register(each)
        time.sleep(60)
time.sleep(60)
"""

BEHIND_DESCRIPTORS = """
import os, resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for _ in range(40):
    if os.fork() == 0:
        taken = bytearray(os.urandom(1 << 20) * 30)
        time.sleep(60)
time.sleep(60)
"""


async def watches_of_epoll_are_counted(runtime: LocalRuntime, _: Path) -> None:
    await _is_ended(runtime, EPOLL)


async def many_descriptors_do_not_slow_the_count_down(runtime: LocalRuntime, _: Path) -> None:
    await _is_ended(runtime, BEHIND_DESCRIPTORS)


async def chains_of_short_processes_are_counted(runtime: LocalRuntime, _: Path) -> None:
    """Each lives shorter than the pause between two looks."""
    await _is_ended(runtime, CHAIN)


async def threads_without_a_leader_are_counted(runtime: LocalRuntime, _: Path) -> None:
    await _is_ended(runtime, MADE_WITHOUT_A_LEADER)
    await still_works(runtime)


async def hidden_pages_behind_many_mappings_are_found(runtime: LocalRuntime, _: Path) -> None:
    await _is_ended(runtime, BEHIND_LARGE_MAPS)


async def pages_that_nobody_maps_are_found(runtime: LocalRuntime, _: Path) -> None:
    """They belong to an object of which one page is mapped; an ordinary user can't look there."""
    if os.geteuid() == 0:
        await _is_ended(runtime, BUT_FOR_ONE_PAGE)


async def folders_in_memory_are_counted_behind_a_zombie(runtime: LocalRuntime, _: Path) -> None:
    if not runtime.has_own_kernel:
        await _is_ended(runtime, BEHIND_A_ZOMBIE)
        return
    async with started(runtime) as running:  # `/tmp` is on its disk
        await inside(runtime, running, BEHIND_A_ZOMBIE.partition("time.sleep")[0])
        assert (await runtime.sample(running.run_id)).memory_bytes > 125 << 20


async def what_nobody_reads_from_sockets_is_counted(runtime: LocalRuntime, _: Path) -> None:
    """Also what was sent by those who have closed theirs."""
    await _is_ended(runtime, UNREAD)


async def what_nobody_reads_from_pipes_is_counted(runtime: LocalRuntime, _: Path) -> None:
    await _is_ended(runtime, IN_PIPES)


async def buffers_grow_no_larger(runtime: LocalRuntime, _: Path) -> None:
    code = """
import fcntl, os, socket
for family in (socket.AF_UNIX, socket.AF_INET):
    made = socket.socket(family, socket.SOCK_DGRAM)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        before = made.getsockopt(socket.SOL_SOCKET, option)
        made.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
        print(made.getsockopt(socket.SOL_SOCKET, option) == before)
reader, writer = os.pipe()
try:
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 20)
except PermissionError:
    print(fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) <= 65536)
made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
print(made.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1)
for name in ("tcp_rmem", "tcp_wmem"):
    print(int(open(f"/proc/sys/net/ipv4/{name}").read().split()[2]) <= 1 << 19)
"""
    if runtime.has_own_kernel:  # they do, and what is in them is counted
        await _is_ended(runtime, IN_LARGE_BUFFERS)
        return
    async with started(runtime) as running:
        assert set((await inside(runtime, running, code)).split()) == {"True"}


async def names_in_memory_are_bounded(runtime: LocalRuntime, _: Path) -> None:
    """A link in a tmpfs takes the kernel's memory, and nothing of the folder's size."""
    async with started(runtime) as running:
        code = """
import errno, os
for folder in ("/tmp", "/dev/shm"):
    try:
        for number in range(200_000):
            os.symlink("x" * 100, f"{folder}/{number}")
        print("made them")
    except OSError as error:
        print(errno.errorcode[error.errno], number)
"""
        if runtime.has_own_kernel:
            await send(runtime, running, code)
            assert (await until_ended(runtime, running.run_id)).reason == "out_of_memory"
            return
        told = (await inside(runtime, running, code)).splitlines()
        for line in told:
            name, number = line.split()
            assert name == "ENOSPC"
            assert 10_000 < int(number) < 17_000
        assert len(told) == 2
        assert isinstance(await runtime.refresh(running.run_id), Running)


async def _is_ended(runtime: LocalRuntime, code: str) -> None:
    async with started(runtime) as running:
        await send(runtime, running, code)
        assert (await until_ended(runtime, running.run_id)).reason == "out_of_memory"
