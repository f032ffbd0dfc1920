"""A machine's first processes: bubblewrap around a program that waits, and the agent beside it."""

import asyncio
import json
import os
import resource
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sandyard.runtime.local.agent.agent import AgentSetup
from sandyard.runtime.local.agent.entering import Entry
from sandyard.runtime.local.agent.inside import CONTROL
from sandyard.runtime.local.agent.processes import hard_limits
from sandyard.runtime.local.gvisor.bundle import write_bundle
from sandyard.runtime.local.gvisor.kernel import Kernel
from sandyard.runtime.local.host import processes
from sandyard.runtime.local.host.system_calls import call
from sandyard.runtime.local.ipc.packets import readable
from sandyard.runtime.local.jail import seccomp
from sandyard.runtime.local.jail.isolation import (
    LAUNCHER,
    PATH,
    UID_INSIDE,
    Contents,
    Isolation,
    Jail,
)
from sandyard.runtime.local.jail.native_programs import start_program, sudo_files
from sandyard.runtime.local.jail.spawn import Spawned, first_of, kill_tree, pin, spawn
from sandyard.runtime.local.jail.user_namespaces import root_of
from sandyard.runtime.local.limits.cgroups import Cgroup
from sandyard.runtime.local.records.run_folder import Spec
from sandyard.runtime.local.root_filesystems.settings import CA_BUNDLE
from sandyard.runtime.local.supervisor.agent_client import Agent, AgentClient
from sandyard.runtime.local.supervisor.gvisor_agents import GvisorAgent, InsideClient

KERNELS_INSIDE = "/opt/kernels"
ROOT_INSIDE = 0
_OPEN_FILES = 4096
_PROCESSES_OF_OURS = 3
_PROCESSES_OUTSIDE = 1024
_START_SEC = 10
_FIRST_FREE_PORT, _NETWORK = 1024, 0x40000000
_FIRST_PORT = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_POLL_SEC = 0.002
_TROUBLE_BYTES = 4096
_KERNEL_FOLDER = "gvisor"
_KERNEL_SEC = 60
_PROCESSES_OF_A_KERNEL = 128


@dataclass(frozen=True, slots=True)
class Image:
    """Of a checkpoint: its files, and the socket to which the agent inside connects."""

    folder: Path
    control: str


class MachineProcess:
    """From `start` to `kill`. `exited` is done when it ended by itself."""

    def __init__(self, process: Spawned | None, pid_inside: int, agent: AgentClient) -> None:
        self._process = process
        self.pid_inside = pid_inside
        self.agent: Agent = agent
        self.network = agent.network
        self.kernel: Kernel | None = None
        """Its own kernel, if it has one."""
        self.root_agent: Agent | None = None
        """Acts as root, if the machine has one; started on its first request."""
        self.exited: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if process is not None:
            self.exited = asyncio.ensure_future(process.wait())

    @classmethod
    async def start(
        cls,
        isolation: Isolation,
        spec: Spec,
        cgroup: Cgroup | None,
        *,
        on_exit: Callable[[int, int], None],
        on_lost: Callable[[], None],
        image: "Image | None" = None,
    ) -> "MachineProcess":
        """With an image, the processes of one with its own kernel go on from there. Raises
        OSError."""
        setup = _setup(isolation, spec)
        process = None
        pid_inside = os.getpid()
        if isinstance(isolation, Jail):
            if cgroup is not None:
                has_kernel = spec.isolation == "gvisor"
                ours = _PROCESSES_OF_A_KERNEL + spec.limits.processes if has_kernel else 0
                cgroup.create(spec.limits, processes_of_ours=_PROCESSES_OF_OURS + ours)
            limits = _limits(setup.rlimits, has_uid=isolation.uid is not None)
            process, pid_inside = await _start_jail(isolation, spec, cgroup, limits)
            if spec.entry is not None and spec.port < _FIRST_FREE_PORT:
                await asyncio.to_thread(_free_low_ports, pid_inside)
            launcher = None if start_program() is None else LAUNCHER
            setup = replace(setup, launcher=launcher, entry=_entry(isolation, pid_inside))
        cpu = spec.limits.cpu if cgroup is None else None
        enlist = None if cgroup is None else cgroup.add
        if spec.isolation == "gvisor":  # then this agent starts no processes
            on_lost = _ignore
        agent = AgentClient(setup, cpu=cpu, enlist=enlist, on_exit=on_exit, on_lost=on_lost)
        try:
            await agent.start()
        except BaseException:
            if process is not None:
                await kill_tree(process)
            raise
        made = cls(process, pid_inside, agent)
        if setup.entry is not None and setup.entry.sudo is not None:
            # No launcher: root could read it, and so take it over before its limits are set.
            entry = replace(setup.entry, uid=ROOT_INSIDE)
            as_root = replace(setup, launcher=None, entry=entry)
            made.root_agent = AgentClient(
                as_root, cpu=cpu, enlist=enlist, on_exit=on_exit, on_lost=on_lost
            )
        if isinstance(isolation, Jail) and spec.isolation == "gvisor":
            try:
                await made._start_kernel(isolation, spec, cgroup, setup, on_exit, image)
            except BaseException:
                await made.kill()
                raise
        return made

    async def _start_kernel(
        self,
        jail: Jail,
        spec: Spec,
        cgroup: Cgroup | None,
        setup: AgentSetup,
        on_exit: Callable[[int, int], None],
        image: "Image | None",
    ) -> None:
        """Its processes run in a kernel of its own, on the folders of the jail."""
        if jail.mounts is None or spec.uid is None:
            raise OSError("gVisor needs a server that is root")
        folder = _kernel_folder()
        sockets = folder / "sockets"
        name = CONTROL if image is None else image.control
        inside = InsideClient(sockets, root_of(spec.uid), on_exit, name)
        names = ("RLIMIT_CORE", "RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_NPROC")
        described = {
            "workspace": setup.workspace,
            "rlimits": {name: setup.rlimits[name] for name in names},
            "environment": setup.environment,
            "launcher": setup.launcher,
            "files": {path: text for path, text in spec.files.items() if path.startswith("/run/")},
            "links": spec.links,
        }
        bound = _bound(spec)
        write_bundle(
            folder,
            jail,
            bound,
            uid=spec.uid,
            network=f"/proc/{self.pid_inside}/ns/net",
            sockets=sockets,
            agent=described,
        )
        try:
            async with asyncio.timeout(_KERNEL_SEC):
                files = None if image is None else image.folder
                platform = spec.gvisor_platform
                self.kernel = await Kernel.start(
                    folder, platform, spec.limits, jail.mounts, cgroup, image=files
                )
                if image is not None:
                    await self.kernel.wake_agent()
                await inside.connected()
        except BaseException:
            inside.close()
            raise
        first, last = self.exited, asyncio.ensure_future(self.kernel.exited())
        self.exited = asyncio.ensure_future(first_of(first, last))
        if not isinstance(self.agent, AgentClient):
            raise TypeError
        self.agent = GvisorAgent(self.agent, inside, as_root=False)
        if isinstance(self.root_agent, AgentClient):
            self.root_agent = GvisorAgent(self.root_agent, inside, as_root=True)

    async def kill(self) -> None:
        """All processes of a machine die with its first one. The agent must live until then: its
        own children among them delay that until it has reaped them."""
        self.exited.cancel()
        if self.kernel is not None:
            self.kernel.kill()
        if self._process is not None:
            await kill_tree(self._process)
        self.agent.close()
        if self.root_agent is not None:
            self.root_agent.close()


async def _start_jail(
    jail: Jail, spec: Spec, cgroup: Cgroup | None, limits: Mapping[int, int]
) -> tuple[Spawned, int]:
    """bubblewrap, and the pid of the waiting program in it."""
    reader, writer = os.pipe()
    trouble, telling = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    root = None if spec.root is None else Path(spec.root)
    contents = Contents(spec.files, spec.folders, spec.links, _bound(spec), root)
    try:
        wrapped = jail.wrap_machine(contents, info=writer)
        process = await spawn(wrapped, inherited=(writer,), stderr=telling, limits=limits)
    finally:
        os.close(writer)
        os.close(telling)
    try:
        async with asyncio.timeout(_START_SEC):
            first = await _first_pid(reader)
            while (pid := _waiting(first)) is None and process.returncode is None:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SEC)
            members = (process.pid, *processes.descendants(process.pid))
            if cgroup is None:
                pin(members, spec.limits.cpu)
            else:
                for member in members:
                    cgroup.add(member)
    except BaseException:
        await kill_tree(process)
        raise
    finally:
        os.close(reader)
        _pass_on(trouble)
    if pid is None:
        raise ChildProcessError(f"bubblewrap ended with {process.returncode}")
    return process, pid


def _free_low_ports(pid: int) -> None:
    """An image's program may listen on port 80 as any user, as in Docker. Where the server can't
    allow that, the program fails with the reason in its log."""

    def free() -> None:
        with suppress(OSError):
            with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
                call("setns", namespace.fileno(), _NETWORK)
            _FIRST_PORT.write_text("0")

    thread = threading.Thread(target=free)  # it alone enters the machine's network
    thread.start()
    thread.join()


def _bound(spec: Spec) -> Mapping[str, Path]:
    """Files and folders of the host that it sees, by path inside."""
    sources = {CA_BUNDLE: spec.ca_file, KERNELS_INSIDE: spec.kernels}
    return {path: Path(source) for path, source in sources.items() if source is not None}


def _kernel_folder() -> Path:
    """In the folder of the run, which is the current one; empty, even after a failed restore."""
    folder = Path(_KERNEL_FOLDER).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "sockets").mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    return folder


def _ignore() -> None:
    """Nothing depends on it."""


def _entry(jail: Jail, pid: int) -> Entry:
    return Entry(
        pid,
        processes.identity(pid),
        UID_INSIDE,
        seccomp.program(),
        jail.memory_folders(),
        sudo_files() if jail.has_root else None,
    )


def _limits(rlimits: Mapping[str, int], *, has_uid: bool) -> dict[int, int]:
    """Programs of the same user can take over bubblewrap's process, so it gets their limits. Its
    limit of processes is higher: outside, all of its user's count, even another server's."""
    most = max(rlimits["RLIMIT_NPROC"], _PROCESSES_OUTSIDE)
    limits = hard_limits({**rlimits, "RLIMIT_NPROC": most})
    if not has_uid:
        del limits[resource.RLIMIT_NPROC]
    return limits


def _pass_on(trouble: int) -> None:
    """Log bubblewrap's messages. It gets no log of ours itself, because the machine could take it
    over."""
    with suppress(BlockingIOError):
        os.write(2, os.read(trouble, _TROUBLE_BYTES))
    os.close(trouble)


async def _first_pid(reader: int) -> int:
    content = b""
    while b"}" not in content:
        await readable(reader)
        piece = os.read(reader, 4096)
        if not piece:
            raise ChildProcessError("bubblewrap did not start")
        content += piece
    return int(json.loads(content)["child-pid"])


def _waiting(first: int) -> int | None:
    """The waiting program, once it runs: the machine's first process or, if bubblewrap is that, its
    child."""
    with suppress(OSError, ValueError):
        if not _is_bubblewrap(first):
            return first
        [child, *_] = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return None if _is_bubblewrap(int(child)) else int(child)
    return None


def _is_bubblewrap(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text().strip() == "bwrap"


def _setup(isolation: Isolation, spec: Spec) -> AgentSetup:
    limits = spec.limits
    rlimits = {
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": _OPEN_FILES,
        "RLIMIT_DATA": limits.memory_bytes,
        "RLIMIT_FSIZE": limits.storage_bytes,
    }
    if isinstance(isolation, Jail):
        sizes = (each.limit_bytes for each in isolation.volumes.values())
        rlimits["RLIMIT_FSIZE"] = max(limits.storage_bytes, *sizes, 0)
    # Without a user namespace all processes of the user would count.
    if isinstance(isolation, Jail):
        rlimits["RLIMIT_NPROC"] = limits.processes + _PROCESSES_OF_OURS
    environment = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": isolation.folder, **spec.environment}
    if not isinstance(isolation, Jail):
        environment["PATH"] = os.environ.get("PATH", PATH)
    return AgentSetup(isolation.folder, rlimits, environment)
