"""A hostile program looks for a way to the host, and finds none."""

import errno
import json
import os
import socket
import subprocess
from pathlib import Path

from sandyard.runtime.local.runtime import LocalRuntime
from tests.integration.runtime.attacks.others import still_works
from tests.integration.runtime.programs import inside, send, started, until_ended


async def it_sees_no_file_of_the_host(runtime: LocalRuntime, folder: Path) -> None:
    async with started(runtime) as other, started(runtime) as running:
        await inside(other, "open('secret', 'w').write('x')")
        theirs = runtime.workspace_of(other.run_id) / "secret"
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
            assert await inside(running, code) == f"['lo']\n{errno.EAFNOSUPPORT}"
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
        assert (await until_ended(runtime, running.run_id)).reason == "exited"
        await still_works(runtime)
