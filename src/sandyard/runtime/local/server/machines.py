"""`Machines` on this host. All its state is on disk, so that a restarted server adopts it."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

from sandyard.kit.clock import Clock
from sandyard.kit.errors import UnavailableError
from sandyard.runtime import errors, model
from sandyard.runtime.local.client.session import LocalSession
from sandyard.runtime.local.client.supervisor_client import SupervisorClient
from sandyard.runtime.local.host import processes
from sandyard.runtime.local.ipc.packets import readable
from sandyard.runtime.local.records import logs
from sandyard.runtime.local.records.run_folder import LocalRunFolder, Spec
from sandyard.runtime.local.root_filesystems.images import ImageRoots
from sandyard.runtime.local.server.enforcement import (
    GVISOR_NEEDS_ROOT,
    Enforcement,
    find_enforcement,
)
from sandyard.runtime.local.server.isolation_check import check_isolation
from sandyard.runtime.local.server.isolation_choice import with_isolation
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.local.server.specs import Specs, described_secrets
from sandyard.runtime.local.server.supervisors import FORKS, kill_orphans
from sandyard.runtime.local.server.uids import Uids
from sandyard.runtime.local.storage.shared_files import BLANKS, remove_unused
from sandyard.runtime.local.storage.volumes import make_image
from sandyard.runtime.machine_ports import Egress
from sandyard.runtime.network_model import NO_RULES, EgressReport, EgressRules, Network
from sandyard.runtime.programs.lifecycle import not_running, wait_until
from sandyard.runtime.records.disk_reserve import DiskReserve
from sandyard.runtime.records.run_folder import RunFolders, exists, remove_folder
from sandyard.runtime.secrets_model import MachineSecrets
from sandyard.runtime.sessions.ports import Session
from sandyard.runtime.store.archives import ArchiveFolder
from sandyard.runtime.store.layers import NoLayers

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
_POLL_SEC = 0.005
_WAIT_SEC = 0.25
_ENDING_SEC = 3.0


class LocalMachines:
    def __init__(
        self,
        folder: Path,
        options: LocalOptions,
        clock: Clock,
        layers: NoLayers | None = None,
        images: ImageRoots | None = None,
    ) -> None:
        self._folder = folder.absolute()
        self._options = options
        self._clock = clock
        self.records = RunFolders(self._folder)
        self._snapshots = ArchiveFolder(self._folder / "snapshots", None, layers, "snapshots")
        self._reserve = DiskReserve(self._folder, options.disk_reserve_bytes)
        self._images = images or ImageRoots(self._folder, clock, self._reserve, layers)
        self._specs = Specs(self._folder, self._snapshots, clock, self._reserve)
        self._uids = Uids(self._folder / "uids", self._options.uids)
        self._is_checked = False
        self._enforcement = Enforcement()

    async def check(self, isolation: model.IsolationMode | None = None) -> None:
        await self._check_host()
        await self._require_isolation(isolation)
        await _in_thread(self._reserve.require)

    async def _check_host(self) -> None:
        if not self._is_checked:
            now = self._clock.now()
            self._options = await _in_thread(with_isolation, self._options, self._folder, now)
            await _in_thread(check_isolation, self._options.isolation, self._options)
            await _in_thread(self._folder.mkdir, parents=True, exist_ok=True)
            self._enforcement = await _in_thread(find_enforcement, self._options, self._folder, now)
            for warning in self._enforcement.warnings():
                logger.warning("sandboxes: %s", warning)
            await _in_thread(remove_unused, self._folder, now=self._clock.now())
            self._is_checked = True

    async def _require_isolation(self, wanted: model.IsolationMode | None) -> None:
        """IsolationMissingError if it is stronger than the runtime's own, and missing here."""
        if wanted == "gvisor" != self._options.isolation:
            await _in_thread(check_isolation, wanted, self._options)
            if not self._enforcement.has_root:
                raise errors.IsolationMissingError(
                    f"{GVISOR_NEEDS_ROOT}: {self._enforcement.no_root}."
                )

    async def create(self, run_id: model.RunId, spec: model.MachineSpec) -> model.Up:
        await self._check_host()
        await self._require_isolation(spec.isolation)
        await self._images.require(spec.root)
        reader = await _in_thread(self._begin, run_id, spec)
        if reader is not None:
            await becomes_readable(reader)
        timeout_sec = self._options.prepare_timeout_sec + 30
        machine = await self._wait(
            run_id, lambda machine: not isinstance(machine, model.Starting), timeout_sec
        )
        if isinstance(machine, model.Up):
            return machine
        if isinstance(machine, model.Ended) and machine.error_code is not None:
            raise errors.start_failure(machine.error_code, machine.message)
        raise errors.NotRunningError if machine is None else not_running(machine)

    async def find(self, run_id: model.RunId) -> model.MachineState | None:
        return await _in_thread(_read_state, run_id, self._folder_of(run_id))

    async def refresh(self, run_id: model.RunId) -> model.MachineState | None:
        return await _in_thread(self._refresh, run_id)

    async def run_ids(self, kind: model.Kind) -> Sequence[model.RunId]:
        return await _in_thread(self.records.run_ids, kind)

    async def versions(self, kind: model.Kind) -> Mapping[model.RunId, object]:
        return await _in_thread(self._versions, kind)

    async def session(self, run_id: model.RunId) -> Session:
        await self._check_host()
        # A supervisor that died silently is noticed by the first request, which can't reach it.
        folder = self._folder_of(run_id)
        if not folder.says_up():
            await self._require_up(run_id)
        client = self._client(run_id, folder)
        return LocalSession(client, has_root=self._enforcement.has_root)

    async def set_deadline(
        self, run_id: model.RunId, deadline_at: float, *, keeps_memory: bool | None = None
    ) -> float:
        await self._require_up(run_id)
        write = self._folder_of(run_id).write_deadline
        await _in_thread(write, deadline_at, keeps_memory=keeps_memory)
        return deadline_at

    async def stop(self, run_id: model.RunId, *, has_memory: bool = False) -> None:
        if isinstance(await self.find(run_id), model.Ended | None):
            return
        if has_memory:
            with suppress(errors.NotRunningError):  # it ends meanwhile
                (await self._client(run_id).ask("suspend", {})).close()
            return
        await _in_thread(_request_stop, self._folder_of(run_id))

    async def forget(self, run_id: model.RunId) -> None:
        await self._until_supervisor_is_gone(self._folder_of(run_id))
        await _in_thread(self.records.remove, run_id)

    async def sample(self, run_id: model.RunId) -> model.Sample:
        await self._require_up(run_id)
        packet = await self._client(run_id).ask("sample", {})
        return model.Sample(**packet.message["result"])

    async def workspace_bytes(self, run_id: model.RunId) -> int:
        return (await self.sample(run_id)).storage_bytes

    async def pack(self, run_id: model.RunId, to: Path, *, has_memory: bool = False) -> bool:
        await self._require_up(run_id)
        arguments = {"to": str(to), "has_memory": has_memory}
        (await self._client(run_id).ask("pack", arguments)).close()
        return True

    async def stop_program(self, run_id: model.RunId) -> None:
        await self._require_up(run_id)
        (await self._client(run_id).ask("stop_program", {})).close()

    async def entry_point(self, run_id: model.RunId) -> model.EntryPoint | None:
        spec = await _in_thread(self._folder_of(run_id).spec)
        return None if spec is None or spec.entry is None else model.EntryPoint(**spec.entry)

    async def read_log(self, run_id: model.RunId, begin: int | None) -> model.Log:
        folder = self._folder_of(run_id).logs
        return await _in_thread(logs.read, folder, begin, limit_bytes=self._options.log_bytes)

    @asynccontextmanager
    async def egress(self, run_id: model.RunId) -> AsyncIterator[Egress]:
        async with self._client(run_id).open() as request:
            packet = await request("open_egress", {})
            environment = packet.message["result"]["environment"]

            async def refused() -> str | None:
                host = (await request("refused_egress", {})).message["result"]
                return None if host is None else str(host)

            yield Egress(environment, refused)

    async def set_network(
        self, run_id: model.RunId, network: Network, rules: EgressRules = NO_RULES
    ) -> None:
        await self._require_up(run_id)
        arguments = {"network": network, "rules": asdict(rules)}
        (await self._client(run_id).ask("set_network", arguments)).close()

    async def set_secrets(self, run_id: model.RunId, secrets: MachineSecrets) -> None:
        await self._require_up(run_id)
        content = await _in_thread(described_secrets, secrets, self._options)
        (await self._client(run_id).ask("set_secrets", {}, data=content)).close()

    async def egress_report(self, run_id: model.RunId) -> EgressReport:
        found = await _in_thread(self._folder_of(run_id).egress)
        return found or EgressReport("none")

    async def has_snapshot(self, snapshot_id: str) -> bool:
        return await self._snapshots.find(snapshot_id) is not None

    async def require_snapshot(self, snapshot_id: str) -> None:
        await self._snapshots.require(snapshot_id)

    async def store_snapshot(self, snapshot_id: str, *, timeout_sec: float | None = None) -> None:
        with suppress(errors.SnapshotNotFoundError):  # what is not here can't be stored
            await self._snapshots.store(snapshot_id, timeout_sec=timeout_sec)

    async def list_snapshots(self) -> Sequence[model.Snapshot]:
        return await self._snapshots.list_all()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._snapshots.delete(snapshot_id)

    def _folder_of(self, run_id: model.RunId) -> LocalRunFolder:
        return LocalRunFolder(self.records.path_of(run_id))

    def _client(
        self, run_id: model.RunId, folder: LocalRunFolder | None = None
    ) -> SupervisorClient:
        async def explain(error: OSError) -> NoReturn:
            """A machine that can't be reached has ended, or is about to say so."""
            with suppress(TimeoutError):
                async with asyncio.timeout(_ENDING_SEC):
                    while await self._require_up(run_id):  # noqa: ASYNC110 - another process
                        await asyncio.sleep(_POLL_SEC)
            raise errors.RuntimeUnavailableError(reason=str(error)) from error

        return SupervisorClient((folder or self._folder_of(run_id)).path, explain, as_root=False)

    async def _require_up(self, run_id: model.RunId) -> model.Up:
        machine = await self.refresh(run_id)
        if machine is None:
            raise errors.RunNotFoundError
        if not isinstance(machine, model.Up):
            raise not_running(machine)
        return machine

    async def _wait(
        self,
        run_id: model.RunId,
        is_done: Callable[[model.MachineState | None], bool],
        timeout_sec: float,
    ) -> model.MachineState | None:
        try:
            return await wait_until(is_done, partial(self.refresh, run_id), timeout_sec=timeout_sec)
        except TimeoutError as error:
            raise errors.SupervisorTimeoutError(reason=f"{run_id} did not change") from error

    async def _until_supervisor_is_gone(self, folder: LocalRunFolder) -> None:
        """It still clears the workspace after the end is recorded."""
        until = time.monotonic() + self._options.snapshot_timeout_sec
        while (pid := await _in_thread(folder.supervisor_pid)) is not None:
            if time.monotonic() > until:
                raise errors.SupervisorTimeoutError
            if await becomes_readable(process_descriptor(pid)):
                break  # /proc would block now: the kernel is tearing it down

    def _begin(self, run_id: model.RunId, spec: model.MachineSpec) -> int | None:
        """Start a supervisor, unless there is one: of concurrent calls, one gets the lock. Returns
        a pipe that is closed when the outcome of the start is recorded."""
        folder = self._folder_of(run_id)
        whole = self._specs.make(run_id, spec, self._options, self._enforcement)
        folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        while not folder.has_spec():
            with folder.lock() as lock:
                if lock is None:  # someone reads the folder, or is about to write the spec
                    time.sleep(_POLL_SEC)
                elif not folder.has_spec():
                    self._prepare(folder, whole)
                    return self._start_supervisor(folder, lock)
        return None

    def _start_supervisor(
        self, folder: LocalRunFolder, lock: int, *, is_closing: bool = False
    ) -> int:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            FORKS.start(folder.path, lock, writer, is_closing=is_closing)
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        return reader

    def _prepare(self, folder: LocalRunFolder, spec: Spec) -> None:
        if os.geteuid() == 0 and spec.isolation != "none":
            spec = replace(spec, uid=self._uids.take(folder.path))
        (self._folder / "snapshots").mkdir(mode=0o700, exist_ok=True)
        remove_folder(folder.workspace)
        folder.workspace.mkdir(mode=0o700)
        if spec.volume == "image" and spec.uid is not None:
            size_bytes = spec.limits.storage_bytes
            blanks = self._folder / BLANKS
            make_image(folder.image, size_bytes, blanks=blanks, now=self._clock.now())
        if spec.uid is not None:
            os.chown(folder.workspace, spec.uid, spec.uid)
        folder.write_spec(spec)

    def _versions(self, kind: model.Kind) -> Mapping[model.RunId, object]:
        found, now = {}, time.time()
        for run_id in self.records.run_ids(kind):
            folder = self._folder_of(run_id)
            version = folder.version(now=now)
            with suppress(errors.RecordBrokenError):  # then it is asked, which says so
                if version is not None and folder.supervisor_pid() is not None:
                    found[run_id] = version
        return found

    def _refresh(self, run_id: model.RunId) -> model.MachineState | None:
        folder = self._folder_of(run_id)
        state = _read_state(run_id, folder)
        if isinstance(state, model.Ended | None) or folder.supervisor_pid() is not None:
            return state
        try:
            return self._end_lost(run_id, folder)
        except FileNotFoundError:
            if exists(folder.path):
                raise
            return None  # forgotten meanwhile

    def _end_lost(self, run_id: model.RunId, folder: LocalRunFolder) -> model.MachineState | None:
        """Its supervisor is about to start, or was killed: then its end is recorded."""
        with folder.lock() as lock:  # if it is free, the supervisor was killed
            if lock is None:
                return _read_state(run_id, folder)
            if (ended := folder.ended()) is not None:
                return ended
            kill_orphans(folder.path)
            with os.fdopen(self._start_supervisor(folder, lock, is_closing=True), "rb") as pipe:
                pipe.read()  # until that supervisor has ended
        if (ended := folder.ended()) is None:
            raise UnavailableError(reason=f"the end of {run_id} could not be recorded")
        return ended


def _read_state(run_id: model.RunId, folder: LocalRunFolder) -> model.MachineState | None:
    if (ended := folder.ended()) is not None:
        return ended
    if not folder.has_spec():
        return None
    if (ending := folder.ended(final=False)) is not None:
        return model.Stopping(run_id, ending.ended_at, ending.message)
    return folder.up() or model.Starting(run_id, folder.begun_at() or 0)


async def becomes_readable(descriptor: int | None) -> bool:
    """Whether it can be read within a moment: the end of a process, or of a pipe. Closes it."""
    if descriptor is None:
        await asyncio.sleep(_POLL_SEC)
        return False
    try:
        async with asyncio.timeout(_WAIT_SEC):
            await readable(descriptor)
    except TimeoutError:
        return False
    finally:
        os.close(descriptor)
    return True


def process_descriptor(pid: int) -> int | None:
    """None if it has ended, or the system has none."""
    with suppress(AttributeError, OSError):
        return os.pidfd_open(pid)
    return None


async def _in_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """A folder that can't be used is an outage, never reported as an end or a missing machine."""
    try:
        return await asyncio.to_thread(work, *arguments, **named)
    except OSError as error:
        raise errors.RuntimeUnavailableError(reason=str(error)) from error


def _request_stop(folder: LocalRunFolder) -> None:
    """The request first, then the signal: a supervisor that is just starting finds the request."""
    folder.request_stop()
    pid = folder.supervisor_pid()
    if pid is not None:
        processes.kill([pid], signal.SIGTERM)
