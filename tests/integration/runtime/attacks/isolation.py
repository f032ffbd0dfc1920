"""A hostile program looks for a way to the host, and finds none."""

import json
import os
import subprocess
from pathlib import Path

from sandyard.runtime.sessions.model import Command, Output
from tests.integration.runtime.attacks.others import still_works
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import inside, started


async def it_sees_no_file_of_the_host(runtime: LocalRuntime, folder: Path) -> None:
    async with started(runtime) as other, started(runtime) as running:
        await inside(runtime, other, "open('secret', 'w').write('x')")
        theirs = runtime.workspace_of(other.run_id) / "secret"
        assert theirs.exists()
        has_root = (await runtime.session(running.run_id)).as_root() is not None
        # With a root of its own it has folders of these names, which are empty.
        paths = ["/root", "/home/root", "/etc/shadow", "/var/log", "/sys", "/boot"]
        paths += [str(folder), str(theirs)]
        code = f"""
import os
found = [path for path in {paths!r} if os.path.lexists(path)]
print([path for path in found if not {has_root} or not os.path.isdir(path) or os.listdir(path)])
"""
        assert await inside(runtime, running, code) == (
            "['/sys']" if runtime.has_own_kernel else "[]"  # that kernel's
        )
        code = "print(*(line.split(':')[2] for line in open('/etc/passwd')))"
        *system, own = map(int, (await inside(runtime, running, code)).split())
        assert own == 1000
        # With a root of its own, those that packages know: nobody who uses this machine.
        assert all(has_root and (each < 1000 or each == 65534) for each in system)
        seen = await inside(runtime, running, "import os; print(sorted(os.listdir('/')))")
        assert set(json.loads(seen.replace("'", '"'))) <= {
            *("bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin"),
            *("home", "opt", "tmp", "usr", "workspace"),
            *(("media", "mnt", "root", "srv", "sys", "var") if has_root else ()),
        }
        assert await inside(runtime, running, "import os; print(os.listdir('/home'))") == "['user']"
        assert "token" not in await inside(runtime, running, "import os; print(dict(os.environ))")


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
        assert await inside(runtime, running, code) == ""


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
                assert await inside(runtime, running, code) == ""
                count = await inside(
                    runtime,
                    running,
                    "import os; print(len([*filter(str.isdigit, os.listdir('/proc'))]))",
                )
                assert int(count) < 8
            assert victim.poll() is None
        finally:
            victim.kill()


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
        has_root = (await runtime.session(running.run_id)).as_root() is not None
        # Of the rights over its own files and processes that its root has, none is its user's.
        rights = "00000000800000fb 0" if has_root else "0000000000000000 1"
        if runtime.has_own_kernel:  # its namespaces are in there, and it knows no NoNewPrivs
            rights = "00000000800000fb"
        told = (await inside(runtime, running, code)).splitlines()
        assert told.pop() == f"0000000000000000 {rights}"
        assert told == (["could unshare -U true"] if runtime.has_own_kernel else [])


async def it_takes_no_command_over_before_its_limits_hold(runtime: LocalRuntime, _: Path) -> None:
    """Who could read the program that sets them could trace it."""
    async with started(runtime) as running:
        code = """
import os
launcher = "/run/sandyard/launch"
print(os.access(launcher, os.R_OK), os.access(launcher, os.X_OK))
try:
    os.chmod(launcher, 0o555)
    print("opened it")
except OSError:
    pass
"""
        # What holds a kernel of its own is outside of it: nothing is won by tracing.
        reads = runtime.has_own_kernel
        assert await inside(runtime, running, code) == f"{reads} True"
        session = await runtime.session(running.run_id)
        told = session.processes.run(Command(("grep", "Max processes", "/proc/self/limits")))
        written = b"".join([each.data async for each in told if isinstance(each, Output)])
        assert written.startswith(b"Max processes")
        assert b"unlimited" not in written


async def it_finds_no_socket_to_swap(runtime: LocalRuntime, _: Path) -> None:
    """No socket inside can be opened, and no process that could be seen there has one to take."""
    async with started(runtime) as running:
        code = """
import os, socket, stat
for top, folders, files in os.walk("/"):
    if top == "/":
        folders[:] = set(folders) - {"proc", "usr"}
    for name in files:
        try:
            if stat.S_ISSOCK(os.lstat(os.path.join(top, name)).st_mode):
                socket.socket(socket.AF_UNIX).connect(os.path.join(top, name))
                print("found", top, name)
        except OSError:
            pass
"""
        assert await inside(runtime, running, code) == ""
        taken = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
    if pid != os.getpid():
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # a kernel of its own has no such call
            continue
        for number in range(64):
            if (got := libc.syscall(438, descriptor, number, 0)) >= 0 and pid < 3:
                print("took", number, "of", pid, os.readlink(f"/proc/self/fd/{got}"))
"""
        told = await inside(runtime, running, taken)
        assert "socket" not in told
        assert "supervisor" not in told
        limits = """
names = "Max data size", "Max file size", "Max open files", "Max address space"
for pid in "self", "1":
    lines = open(f"/proc/{pid}/limits").readlines()
    print([line.split()[3:5] for line in lines if line.startswith(names)])
"""
        seen = (await inside(runtime, running, limits)).splitlines()
        assert len(seen) == 2, seen
        if not runtime.has_own_kernel:  # there the first process is root's, and the agent
            assert len(set(seen)) == 1, seen
        await inside(runtime, running, "import os, signal; os.kill(1, signal.SIGKILL)")
        assert await inside(runtime, running, "print(6 * 7)") == "42"
        await still_works(runtime)
