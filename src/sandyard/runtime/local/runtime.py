"""`ports.Runtime` on this machine. All that it knows is on disk: a restarted server adopts it."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from sandyard.kit.errors import UnavailableError
from sandyard.runtime.errors import (
    NotRunningError,
    RuntimeUnavailableError,
    SupervisorTimeoutError,
)
from sandyard.runtime.lifecycle import (
    TAIL_LINES,
    check_ended,
    check_startable,
    require_ended,
    require_run,
    require_running,
    require_started,
    wait_until,
)
from sandyard.runtime.local import logs, processes, workspace
from sandyard.runtime.local.isolation_check import check_isolation
from sandyard.runtime.local.orphans import kill_orphans
from sandyard.runtime.local.records import LocalRunFolder, Spec
from sandyard.runtime.local.snapshots import SnapshotFolder
from sandyard.runtime.local.spawn_supervisor import spawn_supervisor
from sandyard.runtime.local.specs import LocalPolicy, build_spec
from sandyard.runtime.local.uids import Uids
from sandyard.runtime.local.watchdog import memory_folders
from sandyard.runtime.model import (
    Ended,
    FileChanges,
    Files,
    Kind,
    Limits,
    Program,
    RunId,
    Running,
    RunState,
    Sample,
    Snapshot,
    Starting,
)
from sandyard.runtime.records import RunFolders, exists, remove_folder
from sandyard.runtime.requests import check_sizes

P = ParamSpec("P")
T = TypeVar("T")
_POLL_SEC = 0.01
_FOLLOW_SEC = 0.1


class LocalRuntime:
    def __init__(self, folder: Path, policy: LocalPolicy | None = None) -> None:
        self._folder = folder.absolute()
        self._policy = policy or LocalPolicy()
        self._folders = RunFolders(self._folder)
        self._snapshots = SnapshotFolder(self._folder / "snapshots")
        self._uids = Uids(self._folder / "uids", self._policy.uids)
        self._is_checked = False
        self._children: set[int] = set()

    async def check(self) -> None:
        if not self._is_checked:
            uid = self._policy.uids[0] if os.geteuid() == 0 else None
            await _in_thread(check_isolation, self._policy.isolation, uid=uid)
            await _in_thread(self._folder.mkdir, parents=True, exist_ok=True)
            self._is_checked = True

    async def start(self, run_id: RunId, program: Program, limits: Limits) -> Running:
        await self.check()
        check_startable(await self.find(run_id))
        await _in_thread(self._begin, run_id, program, limits)
        timeout_sec = self._policy.prepare_timeout_sec + self._policy.listen_timeout_sec + 30
        run = await self._wait(run_id, lambda run: not isinstance(run, Starting), timeout_sec)
        folder = self._folder_of(run_id)
        running = await _in_thread(folder.running)
        lines = await _in_thread(logs.tail, folder.logs, TAIL_LINES if running is None else 0)
        return require_started(run, running, log_lines=lines)

    async def stop(self, run_id: RunId) -> Ended:
        run = require_run(await self.find(run_id))
        if not isinstance(run, Ended):
            await _in_thread(_request_stop, self._folder_of(run_id))
            timeout_sec = self._policy.snapshot_timeout_sec + 30
            return require_ended(await self._wait(run_id, _is_over, timeout_sec))
        return run

    async def find(self, run_id: RunId) -> RunState | None:
        return await _in_thread(self._find, run_id)

    async def list_runs(self, kind: Kind) -> Sequence[RunState]:
        run_ids = await _in_thread(self._folders.run_ids, kind)
        found = [await self.find(run_id) for run_id in run_ids]
        return [run for run in found if run is not None]

    async def forget(self, run_id: RunId) -> None:
        run = await self.find(run_id)
        if run is None:
            return
        check_ended(run)
        await self._until_supervisor_is_gone(self._folder_of(run_id))
        await _in_thread(self._folders.remove, run_id)

    async def extend(self, run_id: RunId, *, deadline_at: float) -> Running:
        running = require_running(await self.find(run_id))
        folder = self._folder_of(run_id)
        await _in_thread(folder.write, "deadline", {"deadline_at": deadline_at})
        return replace(running, deadline_at=deadline_at)

    async def sample(self, run_id: RunId) -> Sample:
        require_running(await self.find(run_id))
        return await _in_thread(_sample, self._folder_of(run_id))

    async def tail_logs(self, run_id: RunId, *, lines: int) -> Sequence[str]:
        require_run(await self.find(run_id))
        return await _in_thread(logs.tail, self._folder_of(run_id).logs, lines)

    async def follow_logs(self, run_id: RunId, *, lines: int = 0) -> AsyncIterator[str]:
        require_run(await self.find(run_id))
        reader = logs.LogReader(self._folder_of(run_id).logs)
        written = await _in_thread(list, reader.lines())
        for line in written[len(written) - lines :] if lines else []:
            yield line
        while True:
            has_ended = isinstance(await self.find(run_id), Ended | None)
            for line in await _in_thread(list, reader.lines(all_written=has_ended)):
                yield line
            if has_ended:
                return
            await asyncio.sleep(_FOLLOW_SEC)

    async def write_files(self, run_id: RunId, changes: FileChanges) -> None:
        require_running(await self.find(run_id))
        await _in_thread(_write_files, self._folder_of(run_id), changes)

    async def has_snapshot(self, snapshot_id: str) -> bool:
        return await self.find_snapshot(snapshot_id) is not None

    async def find_snapshot(self, snapshot_id: str) -> Snapshot | None:
        return await _in_thread(self._snapshots.find, snapshot_id)

    async def list_snapshots(self) -> Sequence[Snapshot]:
        return await _in_thread(self._snapshots.list_all)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await _in_thread(self._snapshots.delete, snapshot_id)

    def workspace_of(self, run_id: RunId) -> Path:
        """Where its files are on this machine, while it runs."""
        return self._folder_of(run_id).workspace

    def _folder_of(self, run_id: RunId) -> LocalRunFolder:
        return LocalRunFolder(self._folders.path_of(run_id))

    async def _wait(
        self, run_id: RunId, is_done: Callable[[RunState | None], bool], timeout_sec: float
    ) -> RunState | None:
        try:
            return await wait_until(
                is_done, lambda: self.find(run_id), timeout_sec=timeout_sec, poll_sec=_POLL_SEC
            )
        except TimeoutError as error:
            raise SupervisorTimeoutError(reason=f"{run_id} did not change") from error

    async def _until_supervisor_is_gone(self, folder: LocalRunFolder) -> None:
        """It still clears the workspace when the end is already told."""
        until = time.monotonic() + self._policy.snapshot_timeout_sec
        while await _in_thread(folder.supervisor_pid) is not None:
            if time.monotonic() > until:
                raise SupervisorTimeoutError
            self._reap()
            await asyncio.sleep(_POLL_SEC)

    def _begin(self, run_id: RunId, program: Program, limits: Limits) -> None:
        """Start a supervisor, unless there is one: of the calls at once, one gets the lock."""
        spec = self._spec_for(run_id, program, limits)
        folder = self._folder_of(run_id)
        folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        while folder.read("spec") is None:
            with folder.lock() as lock:
                if lock is None:  # somebody looks at the folder, or is about to write the spec
                    time.sleep(_POLL_SEC)
                elif folder.read("spec") is None:
                    self._begin_alone(run_id, spec, program, lock)

    def _begin_alone(self, run_id: RunId, spec: Spec, program: Program, lock: int) -> None:
        folder = self._folder_of(run_id)
        try:
            self._prepare(folder, spec, program)
            self._supervise(folder, lock)
        except BaseException:
            self._folders.remove(run_id)
            raise

    def _spec_for(self, run_id: RunId, program: Program, limits: Limits) -> Spec:
        templates = self._folder / "templates"
        return build_spec(
            run_id,
            program,
            limits,
            policy=self._policy,
            snapshots=self._snapshots,
            templates=templates,
        )

    def _prepare(self, folder: LocalRunFolder, spec: Spec, program: Program) -> None:
        if os.geteuid() == 0 and spec.isolation == "bubblewrap":
            spec = replace(spec, uid=self._uids.take(folder.path))
        (self._folder / "snapshots").mkdir(mode=0o700, exist_ok=True)
        remove_folder(folder.workspace)
        folder.workspace.mkdir(mode=0o700)
        if spec.uid is not None:
            os.chown(folder.workspace, spec.uid, spec.uid)
        if isinstance(program.source, Files) and spec.restore_from is None:
            changes = FileChanges(written=program.source.contents)
            workspace.apply_changes(folder.workspace, changes, uid=spec.uid)
        folder.write_spec(spec)

    def _supervise(self, folder: LocalRunFolder, lock: int, *arguments: str) -> int:
        pid = spawn_supervisor(folder.path, lock, *arguments)
        self._children.add(pid)
        return pid

    def _reap(self) -> None:
        """Supervisors that have ended are children of ours as long as we live."""
        for pid in list(self._children):
            self._wait_for(pid, os.WNOHANG)

    def _wait_for(self, pid: int, options: int = 0) -> None:
        try:
            ended, _ = os.waitpid(pid, options)
        except ChildProcessError:  # another thread was faster
            ended = pid
        if ended:
            self._children.discard(pid)

    def _find(self, run_id: RunId) -> RunState | None:
        self._reap()
        folder = self._folder_of(run_id)
        try:
            return self._read_state(run_id, folder) if exists(folder.path) else None
        except FileNotFoundError:
            if exists(folder.path):
                raise
            return None  # it was forgotten in this moment

    def _read_state(self, run_id: RunId, folder: LocalRunFolder) -> RunState | None:
        if (ended := folder.ended()) is not None:
            return ended
        if folder.supervisor_pid() is not None:
            if (running := folder.running()) is not None and folder.ended(final=False) is None:
                return running
            return folder.starting_or_stopping(run_id)
        return self._find_without_supervisor(run_id, folder)

    def _find_without_supervisor(self, run_id: RunId, folder: LocalRunFolder) -> RunState | None:
        """It is about to come, or was killed: who gets the lock knows, and closes."""
        with folder.lock() as lock:
            if lock is None:
                return folder.starting_or_stopping(run_id)
            if (ended := folder.ended()) is not None:
                return ended
            if folder.spec() is None:
                return None
            kill_orphans(folder.workspace)
            self._wait_for(self._supervise(folder, lock, "--close"))
        ended = folder.ended()
        if ended is None:
            raise UnavailableError(reason=f"the end of {run_id} could not be recorded")
        return ended


async def _in_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """A folder that can't be used is an outage, and never told as an end or as nothing there."""
    try:
        return await asyncio.to_thread(work, *arguments, **named)
    except OSError as error:
        raise RuntimeUnavailableError(reason=str(error)) from error


def _is_over(run: RunState | None) -> bool:
    return isinstance(run, Ended | None)


def _request_stop(folder: LocalRunFolder) -> None:
    """The request first, then the signal: a supervisor that is just starting finds the request."""
    folder.request_stop()
    pid = folder.supervisor_pid()
    if pid is not None:
        processes.kill([pid], signal.SIGTERM)


def _sample(folder: LocalRunFolder) -> Sample:
    spec = folder.spec()
    pid = folder.supervisor_pid()
    if spec is None or pid is None:
        raise NotRunningError
    tree = processes.descendants(pid)
    with _while_it_runs():
        storage_bytes = workspace.used_bytes(folder.workspace)
    return Sample(
        at=time.time(),
        cpu_seconds=processes.cpu_seconds(tree),
        memory_bytes=processes.memory(tree, memory_folders=memory_folders(tree, spec)).total,
        storage_bytes=storage_bytes,
        processes=len(tree),
    )


def _write_files(folder: LocalRunFolder, changes: FileChanges) -> None:
    spec = folder.spec()
    if spec is None:
        raise NotRunningError
    check_sizes(changes.written, spec.limits)
    with _while_it_runs():
        workspace.apply_changes(folder.workspace, changes, uid=spec.uid)


@contextmanager
def _while_it_runs() -> Iterator[None]:
    """At its end the workspace goes away."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotRunningError from error
