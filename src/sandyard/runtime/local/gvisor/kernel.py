"""The processes of a machine's own kernel: started by runsc, counted by one look."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from sandyard.runtime.local.agent.inside import WAKE
from sandyard.runtime.local.gvisor.runsc import options_on, require_runsc
from sandyard.runtime.local.ipc.packets import readable
from sandyard.runtime.local.jail.mount_namespace import BIND, MountNamespace
from sandyard.runtime.local.jail.spawn import pin
from sandyard.runtime.local.limits.cgroups import Cgroup
from sandyard.runtime.model import GvisorPlatform, Limits

_COMMAND_SEC = 60
_MACHINE = "machine"
_OPTIONS = (
    "--host-uds=open",
    # A checkpoint ends the connections to hosts outside.
    *("--network=sandbox", "--net-disconnect-ok"),
    # The agent outside works on the same files.
    *("--overlay2=none", "--file-access=shared", "--file-access-mounts=exclusive"),
)
_TROUBLE_BYTES = 300
_NETWORK_SETTINGS = Path("/proc/sys/net")
_MEMORY_FILE = "runsc-memory"


class Kernel:
    """The sentry, which runs all processes of the machine, and its helpers."""

    def __init__(self, folder: Path, on: GvisorPlatform, pid: int) -> None:
        self.pid = pid
        self.platform = on
        self._place = (folder, on)
        self._process = os.pidfd_open(pid)

    @classmethod
    async def start(
        cls,
        folder: Path,
        on: GvisorPlatform,
        limits: Limits,
        mounts: MountNamespace,
        cgroup: Cgroup | None,
        *,
        image: Path | None = None,
    ) -> "Kernel":
        """From the bundle in this folder; it becomes a child of this process. With an image of a
        checkpoint, its processes go on from there. Raises OSError."""
        pid_file = folder / "pid"
        restored = () if image is None else ("--image-path", str(image))
        command = (
            *("run" if image is None else "restore", *restored, "--detach"),
            *("--pid-file", str(pid_file), "--bundle", str(folder), _MACHINE),
        )
        with _host_shown(folder, limits, mounts):
            await _runsc(folder, on, *command, prepare=partial(_confine, limits.cpu, cgroup))
        return cls(folder, on, int(pid_file.read_text()))

    async def pause(self) -> None:
        """Stop all its processes, until `resume`. Raises OSError."""
        await _runsc(*self._place, "pause", _MACHINE)

    async def resume(self) -> None:
        await _runsc(*self._place, "resume", _MACHINE)

    async def checkpoint(self, image: Path) -> None:
        """Write what a paused one has in memory to files in this folder; it stays paused. Raises
        OSError if it holds what can't be written, and is as before then."""
        options = ("--image-path", str(image), "--leave-running", "--compression", "none")
        await _runsc(*self._place, "checkpoint", *options, _MACHINE)

    async def wake_agent(self) -> None:
        await _runsc(*self._place, "kill", _MACHINE, str(WAKE.value))

    async def exited(self) -> None:
        await readable(self._process)

    def kill(self) -> None:
        """Its helpers end with it."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def memory_bytes(self) -> int:
        """All memory of the machine: its kernel holds it in one file, and its own state beside it.
        Raises OSError."""
        return _memory_file_bytes(self.pid) + _own_bytes(self.pid)


async def _runsc(
    folder: Path, on: GvisorPlatform, *command: str, prepare: Callable[[], None] | None = None
) -> None:
    """Raises OSError with what it said."""
    log = folder / f"log-{command[0]}"
    with log.open("wb") as trouble:
        process = await asyncio.create_subprocess_exec(
            *(
                require_runsc(),
                "--root",
                str(folder / "state"),
                *options_on(on),
                *_OPTIONS,
                *command,
            ),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=trouble,
            preexec_fn=prepare,
        )
        async with asyncio.timeout(_COMMAND_SEC):
            code = await process.wait()
    if code:
        first = log.read_text(errors="replace").strip().partition("\n")[0][:_TROUBLE_BYTES]
        raise ChildProcessError(f"gVisor's runsc {command[0]} ended with {code}: {first}")


@contextmanager
def _host_shown(folder: Path, limits: Limits, mounts: MountNamespace) -> Iterator[None]:
    """Let runsc, started in this mount namespace, take the limit for the size of the host: the
    machine's `/proc/meminfo` then shows it. Hide the settings by which runsc 20240729 takes each
    network namespace of a newer kernel for the host's. Not for longer: with a mount over a part of
    it, `/proc` can't be mounted in a jail."""
    memory, nothing = folder / "meminfo", folder / "empty"
    memory.write_text(f"MemTotal: {limits.memory_bytes // 1024} kB\n")
    nothing.mkdir(exist_ok=True)
    shown = {_NETWORK_SETTINGS: nothing, Path("/proc/meminfo"): memory}
    for place, source in shown.items():
        mounts.mount(str(source), place, None, BIND)
    try:
        yield
    finally:
        for place in shown:
            mounts.unmount(place)


def _confine(cpu: float, cgroup: Cgroup | None) -> None:
    """What runsc starts inherits it; and the machine counts the processors that it may use. If the
    host's memory runs out, its kernel ends the machine before the server."""
    Path("/proc/self/oom_score_adj").write_text("1000")
    pin([0], cpu)
    if cgroup is not None:
        cgroup.add(0)


def _memory_file_bytes(pid: int) -> int:
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):  # noqa: PTH208 - it is looked at often
        path = f"{folder}/{name}"
        with suppress(FileNotFoundError):
            if _MEMORY_FILE in os.readlink(path):  # noqa: PTH115 - as above
                return os.stat(path).st_blocks * 512  # noqa: PTH116 - as above
    return 0


def _own_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:  # noqa: PTH123 - as above
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0
