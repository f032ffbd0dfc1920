"""The process beside each machine: starts it, enforces its deadline and limits, records its end.

It has the standard library alone, so that it starts quickly. It outlives the server and never calls
it. If it `is_closing`, it records the end of a machine whose supervisor was killed.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from sandyard.kit.clock import Clock, SystemClock
from sandyard.runtime.errors import (
    MemoryNotKeptError,
    OverLimitError,
    RuntimeUnavailableError,
    StartFailedError,
    StoppedWhileStartingError,
    SupervisorLostError,
)
from sandyard.runtime.local.gvisor.memory_images import find_memory
from sandyard.runtime.local.host import processes
from sandyard.runtime.local.host.system_calls import adopt_orphans
from sandyard.runtime.local.jail.isolation import Isolation, Jail, NoIsolation
from sandyard.runtime.local.jail.mount_namespace import MountNamespace
from sandyard.runtime.local.jail.overlays import System, layers_of
from sandyard.runtime.local.jail.size import size_files
from sandyard.runtime.local.jail.spawn import first_of
from sandyard.runtime.local.jail.user_namespaces import make_user_namespaces
from sandyard.runtime.local.limits.cgroups import Cgroup
from sandyard.runtime.local.limits.watchdog import Watchdog
from sandyard.runtime.local.records.run_folder import LOCK, START_PIPE, LocalRunFolder, Spec
from sandyard.runtime.local.storage.snapshots import SnapshotFailedError
from sandyard.runtime.local.storage.volumes import SYSTEM, volume_of
from sandyard.runtime.local.supervisor.checkpoints import Checkpoints, restore_processes
from sandyard.runtime.local.supervisor.commands import CommandTable
from sandyard.runtime.local.supervisor.gvisor_agents import GvisorAgent
from sandyard.runtime.local.supervisor.machine_egress import MachineEgress
from sandyard.runtime.local.supervisor.machine_process import Image, MachineProcess
from sandyard.runtime.local.supervisor.machine_snapshots import MachineSnapshots
from sandyard.runtime.local.supervisor.machine_volumes import with_volumes
from sandyard.runtime.local.supervisor.program import STOP_GRACE_SEC, SupervisedProgram
from sandyard.runtime.local.supervisor.session_server import SessionServer, listening_ports
from sandyard.runtime.model import Ended, EndReason, Up
from sandyard.runtime.programs.lifecycle import end_message

POLL_SEC = 0.25
_HEARTBEAT_SEC = 1.0
_DEADLINE_GRACE_SEC = 0.5


async def until_deadline(
    folder: LocalRunFolder,
    clock: Clock,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Return at the current deadline, late only if it is moved to within `POLL_SEC`; record
    heartbeats in between."""
    heartbeat_at = deadline_at = 0.0
    version: tuple[object, ...] = ()
    while True:
        at = clock.now()
        # A read or write that fails for lack of descriptors is no end, nor is a broken record.
        with suppress(OSError, RuntimeUnavailableError):
            if (latest := folder.up_version()) != version:
                up = folder.up()
                deadline_at = up.deadline_at if up else 0.0  # its folder was removed
                version = latest
        left_sec = deadline_at - at
        if left_sec <= 0:
            return
        if abs(at - heartbeat_at) >= _HEARTBEAT_SEC:
            heartbeat_at = at
            with suppress(OSError):
                folder.write_heartbeat()
        await sleep(min(left_sec, POLL_SEC))


class Supervisor:
    def __init__(
        self, folder: LocalRunFolder, spec: Spec, clock: Clock, *, start_pipe: int | None
    ) -> None:
        """`start_pipe` is closed when the outcome of the start is recorded."""
        self._folder = folder
        self._spec = spec
        self._clock = clock
        self._start_pipe = start_pipe
        self._stop = asyncio.Event()
        self._server: SessionServer | None = None
        self._is_resumed = False
        # First of all: existing threads would not join the namespace.
        self._mounts = None if spec.uid is None else MountNamespace(in_use=[folder.path])
        self._volume = volume_of(folder, spec, self._mounts)
        root = spec.cgroup_root
        self._cgroup = None if root is None else Cgroup(Path(root), folder.path)
        self._watchdog = Watchdog(spec, folder.workspace, self._volume, self._cgroup, clock)
        self._commands = CommandTable(folder.path, clock)
        self._program = SupervisedProgram(self._commands, folder, clock, log_bytes=spec.log_bytes)
        self._egress = MachineEgress(
            folder, spec, own=self._watchdog.spared, note=self._program.note
        )

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop.set)
        self._folder.write_supervisor()
        # The request is written before the signal is sent: one of the two is always seen.
        if self._folder.stop_is_requested():
            self._stop.set()
        adopt_orphans()
        exceeded = asyncio.ensure_future(self._watchdog.run())
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            machine = await self._start(exceeded, stopped)
        except StartFailedError as error:
            processes.kill_descendants(os.getpid())
            self._record_failure(error)
            return
        except OSError as error:
            self._record_failure(StartFailedError(f"The machine could not be created: {error}"))
            raise
        try:
            await self._run_to_end(machine, exceeded, stopped)
        finally:
            exceeded.cancel()
            stopped.cancel()

    async def _start(
        self, exceeded: asyncio.Future[EndReason], stopped: asyncio.Future[Any]
    ) -> MachineProcess:
        """The machine; or the first failure, with nothing left of it."""
        starting = asyncio.ensure_future(self._make())
        await first_of(starting, exceeded, stopped)
        if starting.done():
            return starting.result()
        starting.cancel()
        await asyncio.wait([starting])
        if stopped.done():
            raise StoppedWhileStartingError
        raise OverLimitError(f"It was {exceeded.result().replace('_', ' ')} at its start.")

    async def _make(self) -> MachineProcess:
        self._volume.attach(is_new=True)  # nobody else has a new one: no wait
        if self._system is not None:
            self._system.prepare()
        is_restored = await self._snapshots.restore()
        if self._spec.mounts:
            attach = partial(with_volumes, self._isolation, self._spec, self._folder.path)
            self._isolation = jail = await asyncio.to_thread(attach)
            self._watchdog.volumes = set(jail.volumes.values())
        machine, memory = await self._start_machine(has_files=is_restored)
        if machine.kernel is not None:
            self._watchdog.watch_kernel(machine.kernel.memory_bytes)
        if machine.kernel is not None and isinstance(machine.agent, GvisorAgent):
            self._snapshots.checkpoints = Checkpoints(
                machine.kernel, machine.agent, self._commands, self._program, self._spec.root
            )
        self._watchdog.watch_folders(machine.pid_inside)
        if not is_restored:
            await self._snapshots.restore_from_inside(machine)
        if self._spec.isolation != "none":  # else it has the host's network
            await self._egress.open(machine.agent, machine.network)
        self._program.listening = partial(listening_ports, machine)
        if memory is not None and isinstance(machine.agent, GvisorAgent):
            await restore_processes(machine.agent, memory, self._commands, self._program)
        self._is_resumed = memory is not None
        self._server = SessionServer(
            machine,
            self._commands,
            self._program,
            egress=self._egress,
            pack=self._snapshots.take,
            suspend=self._suspend_and_stop,
            watchdog=self._watchdog,
        )
        self._server.start()
        return machine

    async def _suspend_and_stop(self) -> None:
        """Raises as `MachineSnapshots.suspend`."""
        await self._snapshots.suspend()
        self._folder.request_stop()
        self._stop.set()

    async def _start_machine(
        self, *, has_files: bool
    ) -> tuple[MachineProcess, Mapping[str, Any] | None]:
        """With the state of its processes, if they go on from its snapshot. If they can't, it
        starts with its files, and its log says why."""
        start = partial(
            MachineProcess.start,
            self._isolation,
            self._spec,
            self._cgroup,
            on_exit=self._commands.record_exit,
            on_lost=self._commands.adopt,
        )
        source = self._spec.restore_from if self._spec.restores_memory and has_files else None
        memory = None if source is None else find_memory(Path(source))
        if memory is None:
            return await start(), None
        folder = self._folder.path / "restored"
        folder.mkdir()
        try:
            memory.require(self._spec.isolation, self._spec.gvisor_platform, self._spec.root)
            await asyncio.to_thread(memory.extract, folder)
            return await start(image=Image(folder, memory.state["control"])), memory.state
        except OSError as error:
            self._program.announce(
                f"sandyard: the processes of the last run could not go on, so it starts with its "
                f"files alone: {error}"
            )
            return await start(), None
        finally:
            shutil.rmtree(folder)

    @cached_property
    def _snapshots(self) -> MachineSnapshots:
        return MachineSnapshots(self._spec, self._isolation, self._folder.workspace, self._clock)

    @cached_property
    def _isolation(self) -> Isolation:
        if self._spec.isolation == "none":
            return NoIsolation(self._folder.workspace)
        limits = self._spec.limits
        half_memory = limits.memory_bytes // 2
        return Jail(
            self._folder.workspace,
            tmp_bytes=None if self._spec.isolation == "gvisor" else half_memory,
            shared_memory_bytes=half_memory,
            uid=self._spec.uid,
            mounts=self._mounts,
            system=self._system,
            proc_files=size_files(cpu=limits.cpu, memory_bytes=limits.memory_bytes),
        )

    @cached_property
    def _system(self) -> System | None:
        spec = self._spec
        if spec.base_files is None or spec.uid is None or self._mounts is None:
            return None
        return System(
            self._folder.volume / SYSTEM,
            layers_of(Path(spec.base_files), None if spec.root is None else Path(spec.root)),
            self._mounts,
            uid=spec.uid,
            namespaces=make_user_namespaces(spec.uid, processes=spec.limits.processes),
        )

    def _record_failure(self, error: StartFailedError) -> None:
        ended = Ended(
            self._spec.run_id,
            "not_started",
            ended_at=self._clock.now(),
            error_code=error.code,
            message=error.message,
        )
        self._folder.write_ended(ended)
        self._report_start()

    def _report_start(self) -> None:
        if self._start_pipe is not None:
            os.close(self._start_pipe)
            self._start_pipe = None

    async def _run_to_end(
        self,
        machine: MachineProcess,
        exceeded: asyncio.Future[EndReason],
        stopped: asyncio.Future[Any],
    ) -> None:
        now = self._clock.now()
        spec = self._spec
        until = now + spec.lifetime_sec
        self._folder.write_up(
            Up(spec.run_id, spec.port, now, until, spec.isolation, is_resumed=self._is_resumed)
        )
        self._report_start()
        deadline = asyncio.ensure_future(until_deadline(self._folder, self._clock))
        ends: dict[asyncio.Future[Any], tuple[EndReason, float]] = {
            self._program.exited: ("exited", 0),
            stopped: ("stopped", STOP_GRACE_SEC),
            deadline: ("timeout", _DEADLINE_GRACE_SEC),
            exceeded: ("killed", 0),
            machine.exited: ("killed", 0),
        }
        await first_of(*ends)
        memory_error = None
        up = self._folder.up() if deadline.done() and not stopped.done() else None
        if up is not None and up.keeps_memory:
            try:
                await self._snapshots.suspend()
            except (MemoryNotKeptError, SnapshotFailedError, OSError) as error:
                memory_error = str(error)
        # If several are done, the earliest in the list above is the reason.
        reason, grace_sec = next(end for future, end in ends.items() if future.done())
        deadline.cancel()
        if reason == "stopped" and not self._folder.stop_is_requested():
            reason = "terminated"
        if reason == "killed":
            reason = self._why_killed(exceeded)
        code = self._program.exited.result() if reason == "exited" else None
        message = end_message(reason, code)
        ending = Ended(spec.run_id, reason, self._clock.now(), exit_code=code, message=message)
        ending = replace(ending, memory_error=memory_error)
        if (suspended := self._snapshots.suspended) is not None:
            snapshot, at = suspended
            ending, grace_sec = replace(ending, snapshot=snapshot, ended_at=at), 0
        # Before streams are cut: who asks why then learns that it ends.
        self._folder.write_ended(ending, final=False)
        await self._program.end(grace_sec=grace_sec)
        if self._server is not None:
            await self._server.close()
        await self._egress.close()
        await machine.kill()
        processes.kill_descendants(os.getpid())  # without isolation: those that left their parents
        await self._program.close()
        now = self._clock.now()
        await self.close(replace(ending, ended_at=now) if suspended is None else ending)

    def _why_killed(self, exceeded: asyncio.Future[EndReason]) -> EndReason:
        if exceeded.done():
            return exceeded.result()
        is_over = self._cgroup is not None and self._cgroup.was_out_of_memory()
        return "out_of_memory" if is_over else "killed"

    async def close(self, ended: Ended) -> None:
        """Record the end, store the workspace as a snapshot if a program ran, record that too. The
        snapshot may use half of the disk's reserve. If it does not fit, the files of a machine that
        has used up the disk are removed; those of another stay here until its next start."""
        self._folder.write_ended(ended, final=False)
        spec = self._spec
        has_run = self._folder.running() is not None and ended.snapshot is None
        if has_run and not self._volume.exists():
            # A restored data dir has the record of a run, but not the files that it was writing.
            ended = replace(ended, snapshot_error="those since its last stop are not there")
        elif has_run:
            try:
                taken = await self._snapshots.take(
                    Path(spec.snapshot_to), reserve_bytes=spec.disk_reserve_bytes // 2
                )
                ended = replace(ended, snapshot=taken)
            except (SnapshotFailedError, OSError) as error:
                ended = replace(ended, snapshot_error=str(error))
        self._folder.write_ended(ended)
        if self._cgroup is not None:
            self._cgroup.remove()
        if ended.snapshot is not None or ended.reason == "disk_full":
            self._volume.remove()

    async def record_lost_end(self) -> None:
        """Record the end of a machine whose supervisor was killed."""
        self._folder.write_supervisor()
        if self._volume.exists():
            await asyncio.to_thread(self._volume.attach, is_new=False)
        was_up = self._folder.up() is not None
        ended = self._folder.ended(final=False) or Ended(
            self._spec.run_id,
            "killed" if was_up else "not_started",
            ended_at=self._folder.last_heartbeat_at(),
            error_code=None if was_up else SupervisorLostError.code,
            message=end_message("killed") if was_up else SupervisorLostError().message,
        )
        await self.close(ended)


async def _main(path: Path, *, is_closing: bool) -> None:
    os.chdir(path)  # socket names are relative to it: whole paths may be too long
    folder = LocalRunFolder(path)
    spec = folder.spec()
    if spec is None:
        raise SystemExit(f"there is nothing to supervise in {path}")
    supervisor = Supervisor(
        folder, spec, SystemClock(), start_pipe=None if is_closing else START_PIPE
    )
    if is_closing:
        await supervisor.record_lost_end()
        return
    await supervisor.run()


def supervise(folder: str, *, is_closing: bool) -> None:
    """With the lock and the end of a pipe as descriptors, in a process forked for it."""
    # A signal that comes early must not kill: the request to stop is read from the folder too.
    # Handlers, not SIG_IGN, which the program would inherit.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    for descriptor in (LOCK, START_PIPE):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - its own way
    asyncio.run(_main(Path(folder), is_closing=is_closing))
