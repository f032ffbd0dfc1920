"""`ports.Runtime` on this machine. All that it knows is on disk: a restarted server adopts it."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from sandyard.kit.errors import UnavailableError
from sandyard.platform.runtime.errors import (
    AttemptEndedError,
    NotHeldError,
    NotRunningError,
    StillRunningError,
    SupervisorSilentError,
    start_failure,
)
from sandyard.platform.runtime.local import logs, processes, workspace
from sandyard.platform.runtime.local.isolation import check_isolation
from sandyard.platform.runtime.local.leftovers import kill_left_behind
from sandyard.platform.runtime.local.records import Folder, Spec
from sandyard.platform.runtime.local.snapshots import SnapshotFolder
from sandyard.platform.runtime.local.spawn_supervisor import spawn_supervisor
from sandyard.platform.runtime.local.specs import LocalPolicy, build_spec, check_sizes
from sandyard.platform.runtime.local.uids import Uids
from sandyard.platform.runtime.local.watchdog import memory_folders
from sandyard.platform.runtime.model import (
    Ended,
    FileChanges,
    Files,
    Held,
    Kind,
    Limits,
    Owner,
    Program,
    Running,
    Sample,
    Snapshot,
    Starting,
    Stopping,
)

T = TypeVar("T")
_LOOK_SEC = 0.01
_FOLLOW_SEC = 0.1
_LINES_TOLD = 20


class LocalRuntime:
    def __init__(self, folder: Path, policy: LocalPolicy | None = None) -> None:
        self._folder = folder.absolute()
        self._policy = policy or LocalPolicy()
        self._snapshots = SnapshotFolder(self._folder / "snapshots")
        self._uids = Uids(self._folder / "uids", self._policy.uids)
        self._is_checked = False
        self._children: set[int] = set()

    async def check(self) -> None:
        if not self._is_checked:
            uid = self._policy.uids[0] if os.geteuid() == 0 else None
            await asyncio.to_thread(check_isolation, self._policy.isolation, uid=uid)
            self._is_checked = True

    async def start(self, owner: Owner, program: Program, limits: Limits) -> Running:
        await self.check()
        if _has_run(await self.find(owner)):
            raise AttemptEndedError
        await asyncio.to_thread(self._begin, owner, program, limits)
        folder = self._of(owner)
        patience = self._policy.prepare_timeout_sec + self._policy.listen_timeout_sec + 30
        held = await self._until(
            folder, owner, lambda held: not isinstance(held, Starting), patience
        )
        if isinstance(held, Ended) and held.reason == "not_started":
            lines = await asyncio.to_thread(logs.tail, folder.logs, _LINES_TOLD)
            raise start_failure(held.error_code, held.message, log_lines=lines)
        running = await asyncio.to_thread(folder.running)  # also if it has ended since
        if held is None or running is None:
            raise NotHeldError
        return running

    async def stop(self, owner: Owner) -> Ended:
        folder = self._of(owner)
        held = await self.find(owner)
        if held is None:
            raise NotHeldError
        if not isinstance(held, Ended):
            await asyncio.to_thread(_request_stop, folder)
            patience = self._policy.snapshot_timeout_sec + 30
            held = await self._until(folder, owner, lambda held: isinstance(held, Ended), patience)
        if not isinstance(held, Ended):
            raise NotHeldError
        return held

    async def find(self, owner: Owner) -> Held | None:
        return await asyncio.to_thread(self._find, owner)

    async def list_held(self, kind: Kind) -> Sequence[Held]:
        found = [await self.find(owner) for owner in await asyncio.to_thread(self._owners, kind)]
        return [held for held in found if held is not None]

    async def forget(self, owner: Owner) -> None:
        held = await self.find(owner)
        if held is None:
            return
        if not isinstance(held, Ended):
            raise StillRunningError
        await self._until_supervisor_is_gone(self._of(owner))
        await asyncio.to_thread(self._remove, owner)

    async def extend(self, owner: Owner, *, deadline_at: float) -> Running:
        running = await self._get_running(owner)
        folder = self._of(owner)
        await asyncio.to_thread(folder.write, "deadline", {"deadline_at": deadline_at})
        return replace(running, deadline_at=deadline_at)

    async def sample(self, owner: Owner) -> Sample:
        await self._get_running(owner)
        return await asyncio.to_thread(_sample, self._of(owner))

    async def tail_logs(self, owner: Owner, *, lines: int) -> Sequence[str]:
        await self._get_held(owner)
        return await asyncio.to_thread(logs.tail, self._of(owner).logs, lines)

    async def follow_logs(self, owner: Owner, *, lines: int = 0) -> AsyncIterator[str]:
        await self._get_held(owner)
        reader = logs.LogReader(self._of(owner).logs)
        written = await asyncio.to_thread(list, reader.lines())
        for line in written[len(written) - lines :] if lines else []:
            yield line
        while True:
            has_ended = isinstance(await self.find(owner), Ended | None)
            for line in await asyncio.to_thread(list, reader.lines(all_written=has_ended)):
                yield line
            if has_ended:
                return
            await asyncio.sleep(_FOLLOW_SEC)

    async def write_files(self, owner: Owner, changes: FileChanges) -> None:
        await self._get_running(owner)
        await asyncio.to_thread(_write_files, self._of(owner), changes)

    async def find_snapshot(self, snapshot_id: str) -> Snapshot | None:
        return await asyncio.to_thread(self._snapshots.find, snapshot_id)

    async def list_snapshots(self) -> Sequence[Snapshot]:
        return await asyncio.to_thread(self._snapshots.list_all)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await asyncio.to_thread(self._snapshots.delete, snapshot_id)

    def workspace_of(self, owner: Owner) -> Path:
        """Where its files are on this machine, while it runs."""
        return self._of(owner).workspace

    def _of(self, owner: Owner) -> Folder:
        return Folder(self._folder / "held" / owner.kind / owner.id / owner.attempt)

    async def _get_held(self, owner: Owner) -> Held:
        held = await self.find(owner)
        if held is None:
            raise NotHeldError
        return held

    async def _get_running(self, owner: Owner) -> Running:
        held = await self.find(owner)
        if not isinstance(held, Running):
            raise NotRunningError if held else NotHeldError
        return held

    async def _until(
        self, folder: Folder, owner: Owner, is_so: Callable[[Held | None], bool], sec: float
    ) -> Held | None:
        until = time.monotonic() + sec
        while not is_so(held := await self.find(owner)):
            if time.monotonic() > until:
                raise SupervisorSilentError(reason=f"nothing happened in {folder.path}")
            await asyncio.sleep(_LOOK_SEC)
        return held

    async def _until_supervisor_is_gone(self, folder: Folder) -> None:
        """It still clears the workspace when the end is already told."""
        until = time.monotonic() + self._policy.snapshot_timeout_sec
        while await asyncio.to_thread(folder.supervisor_pid) is not None:
            if time.monotonic() > until:
                raise SupervisorSilentError
            self._reap()
            await asyncio.sleep(_LOOK_SEC)

    def _owners(self, kind: Kind) -> list[Owner]:
        found = sorted((self._folder / "held" / kind).glob("*/*"))
        return [Owner(kind, path.parent.name, path.name) for path in found]

    def _begin(self, owner: Owner, program: Program, limits: Limits) -> None:
        """Start a supervisor, unless there is one: of the calls at once, one gets the lock."""
        spec = self._spec_for(owner, program, limits)
        folder = self._of(owner)
        folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        while folder.read("spec") is None:
            with folder.lock() as lock:
                if lock is None:  # somebody looks at the folder, or is about to write the spec
                    time.sleep(_LOOK_SEC)
                elif folder.read("spec") is None:
                    self._begin_alone(owner, spec, program, lock)

    def _begin_alone(self, owner: Owner, spec: Spec, program: Program, lock: int) -> None:
        folder = self._of(owner)
        try:
            self._prepare(folder, spec, program)
            self._supervise(folder, lock)
        except BaseException:
            self._remove(owner)
            raise

    def _spec_for(self, owner: Owner, program: Program, limits: Limits) -> Spec:
        templates = self._folder / "templates"
        return build_spec(
            owner,
            program,
            limits,
            policy=self._policy,
            snapshots=self._snapshots,
            templates=templates,
        )

    def _prepare(self, folder: Folder, spec: Spec, program: Program) -> None:
        if os.geteuid() == 0 and spec.isolation == "bubblewrap":
            spec = replace(spec, uid=self._uids.take(folder.path))
        (self._folder / "snapshots").mkdir(mode=0o700, exist_ok=True)
        workspace.remove(folder.workspace)
        folder.workspace.mkdir(mode=0o700)
        if spec.uid is not None:
            os.chown(folder.workspace, spec.uid, spec.uid)
        if isinstance(program.source, Files) and spec.restore_from is None:
            changes = FileChanges(written=program.source.contents)
            workspace.apply_changes(folder.workspace, changes, uid=spec.uid)
        folder.write_spec(spec)

    def _supervise(self, folder: Folder, lock: int, *arguments: str) -> int:
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

    def _find(self, owner: Owner) -> Held | None:
        self._reap()
        folder = self._of(owner)
        if not folder.path.is_dir():
            return None
        if (ended := folder.ended()) is not None:
            return ended
        if folder.supervisor_pid() is not None:
            if (running := folder.running()) is not None and folder.ended(final=False) is None:
                return running
            return folder.between(owner)
        return self._find_without_supervisor(owner, folder)

    def _find_without_supervisor(self, owner: Owner, folder: Folder) -> Held | None:
        """It is about to come, or was killed: who gets the lock knows, and closes."""
        with folder.lock() as lock:
            if lock is None:
                return folder.between(owner)
            if (ended := folder.ended()) is not None:
                return ended
            if folder.spec() is None:
                return None
            kill_left_behind(folder.workspace)
            self._wait_for(self._supervise(folder, lock, "--close"))
        ended = folder.ended()
        if ended is None:
            raise UnavailableError(reason=f"the end of {owner} could not be recorded")
        return ended

    def _remove(self, owner: Owner) -> None:
        folder = self._of(owner)
        workspace.remove(folder.path)
        try:
            folder.path.parent.rmdir()
        except OSError:
            return  # other attempts of the same owner are there


def _has_run(held: Held | None) -> bool:
    if isinstance(held, Ended):
        return held.reason != "not_started"
    return isinstance(held, Stopping)


def _request_stop(folder: Folder) -> None:
    """The request first, then the signal: a supervisor that is just starting finds the request."""
    folder.request_stop()
    pid = folder.supervisor_pid()
    if pid is not None:
        os.kill(pid, signal.SIGTERM)


def _sample(folder: Folder) -> Sample:
    spec = folder.spec()
    pid = folder.supervisor_pid()
    if spec is None or pid is None:
        raise NotRunningError
    tree = processes.descendants(pid)
    return Sample(
        at=time.time(),
        cpu_seconds=processes.cpu_seconds(tree),
        memory_bytes=processes.memory(tree, memory_folders=memory_folders(tree, spec)).total,
        storage_bytes=workspace.used_bytes(folder.workspace),
        processes=len(tree),
    )


def _write_files(folder: Folder, changes: FileChanges) -> None:
    spec = folder.spec()
    if spec is None:
        raise NotRunningError
    check_sizes(changes.written, spec.limits)
    try:
        workspace.apply_changes(folder.workspace, changes, uid=spec.uid)
    except FileNotFoundError as error:  # it ended in this moment
        raise NotRunningError from error
