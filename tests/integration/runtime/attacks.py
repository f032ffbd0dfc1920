"""What a hostile program tries from inside, and that it gets nowhere.

Each attack is a function of the runtime, so that it runs as root in the tests' own process and as
an ordinary user in another: `python3 -m tests.integration.runtime.attacks <folder>` prints each
attack's name with `ok` or the reason why it succeeded.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from sandyard.platform.runtime.local.runtime import LocalRuntime
from sandyard.platform.runtime.model import FileChanges, Files, Program, Running
from tests.integration.runtime.programs import (
    LIMITS,
    MEGABYTE,
    OBEDIENT,
    STATIC,
    fetch,
    inside,
    new_owner,
    send,
    started,
    until_ended,
)

Attack = Callable[[LocalRuntime, Path], Awaitable[None]]

_CALL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    return "got in" if libc.syscall(number, *arguments) >= 0 else ctypes.get_errno()
"""
_ENOSYS, _EAFNOSUPPORT = 38, 97


async def still_works(runtime: LocalRuntime) -> None:
    """Another sandbox starts and serves."""
    async with started(runtime, STATIC) as other:
        assert b"hello" in await fetch(other.url)


async def it_sees_no_file_of_the_host(runtime: LocalRuntime, folder: Path) -> None:
    async with started(runtime) as other, started(runtime) as running:
        await inside(other, "open('secret', 'w').write('x')")
        theirs = runtime.workspace_of(other.owner) / "secret"
        assert theirs.exists()
        paths = ["/root", "/home", "/etc/shadow", "/var", "/sys", "/boot", str(folder), str(theirs)]
        code = f"import os; print([p for p in {paths!r} if os.path.lexists(p)])"
        assert await inside(running, code) == "[]"
        assert await inside(running, "print(open('/etc/passwd').read().count(chr(10)))") == "1"
        seen = await inside(running, "import os; print(sorted(os.listdir('/')))")
        assert set(json.loads(seen.replace("'", '"'))) <= {
            *("bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin"),
            *("tmp", "usr", "workspace"),
        }
        assert "token" not in await inside(running, "import os; print(dict(os.environ))")


async def it_writes_nowhere_but_at_home(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        code = """
import os
for place in ("/", "/dev", "/etc", "/run", "/run/sandyard", "/usr", "/usr/bin", "/proc/sys/kernel"):
    try:
        open(os.path.join(place, "x"), "w")
        print("wrote to", place)
    except OSError:
        pass
"""
        assert await inside(running, code) == ""


async def it_kills_no_process_of_the_host(runtime: LocalRuntime, _: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as victim:
        try:
            async with started(runtime) as running:
                pids = [1000 + n for n in range(3)] + [victim.pid, os.getpid()]
                code = f"""
import os
for pid in {pids!r}:
    try:
        os.kill(pid, 9)
        print("killed", pid)
    except ProcessLookupError:
        pass
"""
                assert await inside(running, code) == ""
                count = await inside(
                    running, "import os; print(len([*filter(str.isdigit, os.listdir('/proc'))]))"
                )
                assert int(count) < 8
            assert victim.poll() is None
        finally:
            victim.kill()


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
        assert 4 <= int(await inside(running, code)) <= LIMITS.processes
        await still_works(runtime)
        ended = await runtime.stop(running.owner)
        assert ended.reason == "stopped"


async def a_fork_bomb_ends_with_its_sandbox(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        bomb = "import subprocess; subprocess.Popen('bomb() { bomb | bomb & }; bomb', shell=True)"
        await send(running, bomb)
        await asyncio.sleep(0.5)
        ended = await runtime.stop(running.owner)
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
        assert await inside(running, code) == "refused"
        assert isinstance(await runtime.find(running.owner), Running)


async def many_processes_take_no_more_either(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        code = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        taken = bytearray(os.urandom(1 << 20) * 60)
        time.sleep(60)
"""
        await send(running, code)
        assert (await until_ended(runtime, running.owner)).reason == "out_of_memory"
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
        await send(running, code)
        assert (await until_ended(runtime, running.owner)).reason == "out_of_memory"


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
        await send(running, code)
        # Each is full at half of the memory; together they are more than there is beside ours.
        assert (await until_ended(runtime, running.owner)).reason == "out_of_memory"
        await still_works(runtime)


async def memory_of_nobody_is_not_given(runtime: LocalRuntime, _: Path) -> None:
    if os.uname().machine != "x86_64":
        return
    async with started(runtime) as running:
        memfd, shmget, io_uring, keyctl = 319, 29, 425, 250
        code = (
            _CALL
            + f"""
print(call({memfd}, b"x", 0), call({shmget}, 0, 1 << 20, 0o1600))
print(call({io_uring}, 1, 0), call({keyctl}, 0, -3, 1))
"""
        )
        assert (await inside(running, code)).split() == [str(_ENOSYS)] * 4


async def it_reaches_no_network(runtime: LocalRuntime, _: Path) -> None:
    """What is sent to link-local addresses stays in the sandbox's empty network namespace."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        secret = socket.socket(socket.AF_UNIX)
        secret.bind(f"\0sandyard-{os.getpid()}")
        secret.listen()
        async with started(runtime) as running:
            code = f"""
import socket
for address in (("127.0.0.1", {port}), ("169.254.169.254", 80), ("10.0.0.1", 80), ("1.1.1.1", 53)):
    try:
        socket.create_connection(address, timeout=2)
        print("reached", address)
    except OSError:
        pass
try:
    socket.socket(socket.AF_UNIX).connect(chr(0) + "sandyard-{os.getpid()}")
    print("reached the abstract socket")
except OSError:
    pass
print([name for _, name in socket.if_nameindex()])
try:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    print("has vsock")
except OSError as error:
    print(error.errno)
"""
            assert await inside(running, code) == f"['lo']\n{_EAFNOSUPPORT}"
        secret.close()


async def it_makes_no_namespace_and_gains_no_right(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        code = """
import os, subprocess
commands = "unshare -U true", "unshare -m true", "mount -t tmpfs x /tmp", "/usr/sbin/chroot / true"
for command in commands:
    if subprocess.run(command.split(), capture_output=True).returncode == 0:
        print("could", command)
status = open("/proc/self/status").read()
wanted = "CapEff", "CapBnd", "NoNewPrivs"
print(*(line.split()[1] for line in status.splitlines() if line.startswith(wanted)))
"""
        assert await inside(running, code) == "0000000000000000 0000000000000000 1"


async def it_keeps_to_its_processors(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        code = """
import os
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
except PermissionError:
    print("refused", len(os.sched_getaffinity(0)))
"""
        assert await inside(running, code) == "refused 1"


async def it_finds_no_socket_to_swap(runtime: LocalRuntime, _: Path) -> None:
    """The listener has no name inside; whoever breaks the relay breaks only its own preview."""
    async with started(runtime) as running:
        code = """
import os, stat
for top, folders, files in os.walk("/"):
    if top == "/":
        folders[:] = set(folders) - {"proc", "usr"}
    for name in files:
        try:
            if stat.S_ISSOCK(os.lstat(os.path.join(top, name)).st_mode):
                print("found", top, name)
        except OSError:
            pass
"""
        assert await inside(running, code) == ""
        relays = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    if b"launch.py" in open(f"/proc/{pid}/cmdline", "rb").read().split(b"/")[-1]:
        os.kill(int(pid), signal.SIGKILL)
"""
        await send(running, relays)
        assert (await until_ended(runtime, running.owner)).reason == "exited"
        await still_works(runtime)


async def it_stores_no_more_than_its_share(runtime: LocalRuntime, _: Path) -> None:
    limits = replace(LIMITS, storage_bytes=40 * MEGABYTE)
    one_file = """
try:
    with open("large", "wb") as file:
        for _ in range(50):
            file.write(bytes(1 << 20))
    print("stored it")
except OSError as error:
    print("refused")
"""
    many_files = """
import os
for number in range(12):
    with open(f"f{number}", "wb") as file:
        file.write(os.urandom(5 << 20))
"""
    unlinked_files = """
import os, time
held = []
for number in range(12):
    held.append(open(f"f{number}", "wb"))
    os.unlink(f"f{number}")
    held[-1].write(os.urandom(5 << 20))
    held[-1].flush()
time.sleep(30)
"""
    async with started(runtime, OBEDIENT, limits) as running:
        assert await inside(running, one_file) == "refused"
    for code in (many_files, unlinked_files):
        async with started(runtime, OBEDIENT, limits) as running:
            await send(running, code)
            assert (await until_ended(runtime, running.owner)).reason == "out_of_storage"
    await still_works(runtime)


async def what_it_leaves_for_the_snapshot_does_no_harm(runtime: LocalRuntime, _: Path) -> None:
    """Links to the host, pipes, sockets, odd names, a deep tree and a huge hole: packed and
    restored as they are, in its own workspace."""
    code = """
import os, socket
os.symlink("/etc/shadow", "shadow")
os.symlink("/", "root")
os.symlink("../../../../..", "up")
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
for name in (b"-rf", b"--checkpoint-action=exec=sh x", b"new\\nline", b"\\xff\\xfe", b"* ?"):
    open(name, "wb").write(b"odd")
open("closed", "w").write("mine")
os.chmod("closed", 0)
os.mkdir("shut")
open("shut/inner", "w").write("mine too")
os.chmod("shut", 0)
with open("hole", "wb") as file:
    file.truncate(200 << 20)
os.link("hole", "same hole")
for _ in range(150):
    os.mkdir("d")
    os.chdir("d")
open("bottom", "w").write("deep")
os.chdir("/workspace")
try:
    os.mknod("device", 0o20600, os.makedev(1, 1))
    print("made a device")
except PermissionError:
    pass
"""
    look = """
import os
print(os.readlink("shadow"), os.readlink("up"), os.lstat("closed").st_mode & 0o777,
      os.lstat("shut").st_mode & 0o777, os.path.getsize("hole"),
      os.lstat("hole").st_ino == os.lstat("same hole").st_ino,
      open("d/" * 150 + "bottom").read(), open(b"new\\nline").read(),
      os.lstat("closed").st_uid == os.getuid())
"""
    expected = f"/etc/shadow ../../../../.. 0 0 {200 << 20} True deep odd True"
    first = new_owner()
    running = await runtime.start(first, OBEDIENT, LIMITS)
    assert await inside(running, code) == ""
    assert await inside(running, look) == expected
    ended = await runtime.stop(first)
    assert ended.snapshot is not None, ended.snapshot_trouble
    assert ended.snapshot.size_bytes < 5 * MEGABYTE
    await runtime.forget(first)
    again = Program(OBEDIENT.source, snapshot_id=ended.snapshot.id)
    async with started(runtime, again) as restored:
        assert await inside(restored, look) == expected


async def shut_folders_hide_nothing(runtime: LocalRuntime, _: Path) -> None:
    """A program that takes away the right to read its own folders is measured all the same."""
    limits = replace(LIMITS, storage_bytes=40 * MEGABYTE)
    async with started(runtime, OBEDIENT, limits) as running:
        code = """
import os
os.mkdir("shut")
files = [open(f"shut/{number}", "wb") for number in range(12)]
os.chmod("shut", 0)
os.chmod("/workspace", 0)
for file in files:
    file.write(os.urandom(5 << 20))
    file.flush()
__import__("builtins").files = files
"""
        await send(running, code)
        ended = await until_ended(runtime, running.owner)
        assert ended.reason == "out_of_storage"
        assert ended.snapshot is not None, ended.snapshot_trouble


async def links_do_not_lead_written_files_outside(runtime: LocalRuntime, folder: Path) -> None:
    outside = folder / "outside"
    outside.mkdir(exist_ok=True)
    outside.chmod(0o777)
    async with started(runtime) as running:
        await inside(
            running,
            f"import os; os.symlink({str(outside)!r}, 'site'); os.symlink('/etc/passwd', 'page')",
        )
        written = {"site/index.html": b"new", "page": b"plain"}
        await runtime.write_files(running.owner, FileChanges(written=written))
        assert list(outside.iterdir()) == []
        assert await inside(running, "print(open('site/index.html').read())") == "new"
        assert await inside(running, "print(open('page').read())") == "plain"


async def a_procfile_that_is_a_link_is_none(runtime: LocalRuntime, _: Path) -> None:
    async with started(runtime) as running:
        await inside(running, "import os; os.remove('Procfile'); os.mkfifo('Procfile')")
        snapshot = (await runtime.stop(running.owner)).snapshot
    assert snapshot is not None
    # A pipe would keep the reader waiting; here it counts as no Procfile, and files are served.
    program = Program(Files({}), snapshot_id=snapshot.id)
    async with started(runtime, program) as restored:
        assert b"app.py" in await fetch(restored.url)


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        it_sees_no_file_of_the_host,
        it_writes_nowhere_but_at_home,
        it_kills_no_process_of_the_host,
        it_forks_without_end_in_vain,
        a_fork_bomb_ends_with_its_sandbox,
        one_process_takes_no_more_memory_than_its_share,
        many_processes_take_no_more_either,
        memory_that_is_shared_and_hidden_is_found,
        folders_in_memory_are_bounded,
        memory_of_nobody_is_not_given,
        it_reaches_no_network,
        it_makes_no_namespace_and_gains_no_right,
        it_keeps_to_its_processors,
        it_finds_no_socket_to_swap,
        it_stores_no_more_than_its_share,
        what_it_leaves_for_the_snapshot_does_no_harm,
        shut_folders_hide_nothing,
        links_do_not_lead_written_files_outside,
        a_procfile_that_is_a_link_is_none,
    )
}


async def _run_all(folder: Path) -> None:
    runtime = LocalRuntime(folder / "runtime")
    for name, attack in ATTACKS.items():
        try:
            await attack(runtime, folder)
            outcome = "ok"
        except Exception:
            outcome = traceback.format_exc()
        sys.stdout.write(json.dumps([name, outcome]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    signal.alarm(120)
    asyncio.run(_run_all(Path(sys.argv[1])))
