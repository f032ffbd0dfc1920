"""`ports.Runtime` at E2B. What it holds is on disk here and in the metadata there."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandyard.kit.clock import utc_time
from sandyard.kit.errors import UnavailableError
from sandyard.runtime.e2b.control import E2bControl
from sandyard.runtime.e2b.endings import Endings
from sandyard.runtime.e2b.errors import (
    E2bGoneError,
    E2bNotMeasuredError,
    E2bUnavailableError,
)
from sandyard.runtime.e2b.records import E2bRunFolder, SnapshotRecords
from sandyard.runtime.e2b.session import Log, Session
from sandyard.runtime.e2b.starts import E2bPolicy, Starts, check_request
from sandyard.runtime.errors import (
    NotRunningError,
    SnapshotNotFoundError,
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
from sandyard.runtime.model import (
    Ended,
    FileChanges,
    Kind,
    Limits,
    Program,
    RunId,
    Running,
    RunState,
    Sample,
    Snapshot,
    Starting,
    Stopping,
    log_line,
    log_lines,
)
from sandyard.runtime.records import RunFolders
from sandyard.runtime.requests import check_sizes

if TYPE_CHECKING:
    from e2b import SandboxMetrics

_POLL_SEC = 0.05
_FOLLOW_SEC = 0.5


class E2bRuntime:
    def __init__(self, folder: Path, control: E2bControl, policy: E2bPolicy) -> None:
        self._folder = folder.absolute()
        self._control = control
        self._policy = policy
        self._folders = RunFolders(self._folder)
        self._snapshots = SnapshotRecords(self._folder / "snapshots")
        self._endings = Endings(control, self._snapshots, node=policy.node)
        self._starts = Starts(control, self._endings, policy)
        self._sessions: dict[str, Session] = {}

    async def check(self) -> None:
        await self._control.check()

    async def start(self, run_id: RunId, program: Program, limits: Limits) -> Running:
        run = await self.find(run_id)
        check_startable(run)
        check_request(program, limits)
        if run is None and program.snapshot_id is not None:
            await self._require_snapshot(program.snapshot_id)
        folder = self._folder_of(run_id)
        await self._begin(folder, program, limits)
        run = await self._wait(run_id, lambda run: not isinstance(run, Starting))
        lines = log_lines(folder.saved_log().content)[-TAIL_LINES:]
        return require_started(run, folder.running(), log_lines=lines)

    async def stop(self, run_id: RunId) -> Ended:
        run = require_run(await self.find(run_id))
        if not isinstance(run, Ended):
            self._folder_of(run_id).request_stop()
            return require_ended(
                await self._wait(run_id, lambda run: isinstance(run, Ended | None))
            )
        return run

    async def find(self, run_id: RunId) -> RunState | None:
        folder = self._folder_of(run_id)
        run = folder.state()
        if isinstance(run, Ended | None):
            return run
        with folder.lock() as lock:
            return run if lock is None else await self._refresh(folder)

    async def list_runs(self, kind: Kind) -> Sequence[RunState]:
        await self._kill_unrecorded(kind)
        found = [await self.find(run_id) for run_id in self._folders.run_ids(kind)]
        return [run for run in found if run is not None]

    async def forget(self, run_id: RunId) -> None:
        run = await self.find(run_id)
        if run is None:
            return
        check_ended(run)
        self._sessions.pop(self._folder_of(run_id).sandbox_id() or "", None)
        await asyncio.to_thread(self._folders.remove, run_id)

    async def extend(self, run_id: RunId, *, deadline_at: float) -> Running:
        running = require_running(await self.find(run_id))
        folder = self._folder_of(run_id)
        try:
            deadline_at = await self._control.set_timeout(
                folder.sandbox_id() or "", lifetime_sec=deadline_at - time.time()
            )
        except E2bGoneError as error:
            raise NotRunningError from error
        running = replace(running, deadline_at=deadline_at)
        folder.move_deadline(running)
        return running

    async def sample(self, run_id: RunId) -> Sample:
        running = require_running(await self.find(run_id))
        session = await self._connect(self._folder_of(run_id))
        since = utc_time(running.started_at)
        try:
            measured = await self._control.metrics(session.sandbox_id, since=since)
        except E2bGoneError as error:
            raise NotRunningError from error
        if not measured:
            raise E2bNotMeasuredError
        usage = await session.usage()
        return Sample(
            at=measured[-1].timestamp.timestamp(),
            cpu_seconds=cpu_seconds(measured, since_at=running.started_at),
            memory_bytes=measured[-1].mem_used,
            storage_bytes=usage.workspace_bytes,
            processes=usage.processes,
        )

    async def tail_logs(self, run_id: RunId, *, lines: int) -> Sequence[str]:
        log = await self._read_log(require_run(await self.find(run_id)), None)
        return log_lines(log.content)[-lines:] if lines > 0 else []

    async def follow_logs(self, run_id: RunId, *, lines: int = 0) -> AsyncIterator[str]:
        log = await self._read_log(require_run(await self.find(run_id)), None)
        *written, rest = log.content.split(b"\n")
        for line in written[len(written) - lines :] if lines else []:
            yield log_line(line)
        read = log.begins_at + len(log.content)
        while True:
            run = await self.find(run_id)
            log = await self._read_log(run, read)
            read = max(read, log.begins_at + len(log.content))
            *written, rest = (rest + log.content).split(b"\n")
            for line in written:
                yield log_line(line)
            if isinstance(run, Ended | None):
                break
            await asyncio.sleep(_FOLLOW_SEC)
        if rest:
            yield log_line(rest)

    async def write_files(self, run_id: RunId, changes: FileChanges) -> None:
        require_running(await self.find(run_id))
        folder = self._folder_of(run_id)
        named = dict.fromkeys(changes.deleted, b"") | dict(changes.written)
        check_sizes(named, folder.limits())
        session = await self._connect(folder)
        await session.apply(changes)

    async def has_snapshot(self, snapshot_id: str) -> bool:
        return await self._control.has_snapshot(snapshot_id)

    async def find_snapshot(self, snapshot_id: str) -> Snapshot | None:
        return self._snapshots.find(snapshot_id)

    async def list_snapshots(self) -> Sequence[Snapshot]:
        return self._snapshots.list_all()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._control.delete_snapshot(snapshot_id)
        self._snapshots.remove(snapshot_id)

    def _folder_of(self, run_id: RunId) -> E2bRunFolder:
        return E2bRunFolder(self._folders.path_of(run_id), run_id)

    async def _require_snapshot(self, snapshot_id: str) -> None:
        if not await self._control.has_snapshot(snapshot_id):
            raise SnapshotNotFoundError

    async def _begin(self, folder: E2bRunFolder, program: Program, limits: Limits) -> None:
        """Start it, unless that was begun before: of the calls at once, one gets the lock."""
        folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        while not folder.is_begun():
            with folder.lock() as lock:
                if lock is None:
                    await asyncio.sleep(_POLL_SEC)
                elif not folder.is_begun():
                    await self._starts.run(folder, program, limits)

    async def _wait(
        self, run_id: RunId, is_done: Callable[[RunState | None], bool]
    ) -> RunState | None:
        policy, timeouts = self._policy, self._control.timeouts
        prepare_sec = policy.prepare_timeout_sec + policy.listen_timeout_sec
        timeout_sec = prepare_sec + timeouts.create_sec + timeouts.snapshot_sec
        try:
            return await wait_until(
                is_done, lambda: self.find(run_id), timeout_sec=timeout_sec, poll_sec=_POLL_SEC
            )
        except TimeoutError as error:
            raise E2bUnavailableError(reason=f"{run_id} did not change") from error

    async def _refresh(self, folder: E2bRunFolder) -> RunState | None:
        """Its state at E2B, with the lock; a start or end that was interrupted is completed."""
        match run := folder.state():
            case Starting():
                return await self._endings.fail_start(folder)
            case Stopping():
                return await self._endings.finish(folder)
            case Running() if folder.stop_is_requested():
                return await self._endings.end(folder, run, "stopped")
            case Running():
                return await self._check_program(folder, run)
        return run

    async def _check_program(self, folder: E2bRunFolder, running: Running) -> RunState:
        """An error inside is no end: whether it still runs, E2B says."""
        sandbox_id = folder.sandbox_id() or ""
        try:
            code = await (await self._connect(folder)).exit_code()
        except (UnavailableError, E2bGoneError):
            self._sessions.pop(sandbox_id, None)
            if await self._control.state(sandbox_id) != "running":
                return await self._endings.end_paused_or_gone(folder, running)
            code = None
        if code is not None:
            return await self._endings.end(folder, running, "exited", code=code)
        folder.write_heartbeat()
        return running

    async def _connect(self, folder: E2bRunFolder) -> Session:
        """A session into its sandbox; a paused one is not resumed."""
        sandbox_id = folder.sandbox_id() or ""
        if sandbox_id not in self._sessions:
            if await self._control.state(sandbox_id) != "running":
                raise E2bUnavailableError(reason=f"{sandbox_id} does not run")
            self._sessions[sandbox_id] = await self._control.connect(sandbox_id)
        return self._sessions[sandbox_id]

    async def _read_log(self, run: RunState | None, begin: int | None) -> Log:
        """What was written from this byte on; of one that has ended, what was kept of it."""
        if run is None:
            return Log(begin or 0, b"")
        folder = self._folder_of(run.run_id)
        if isinstance(run, Running):
            return await (await self._connect(folder)).read_log(begin)
        log = folder.saved_log()
        skipped = max(0, (begin or 0) - log.begins_at)
        return Log(log.begins_at + skipped, log.content[skipped:])

    async def _kill_unrecorded(self, kind: Kind) -> None:
        """End what E2B runs for us and no record names: a create whose answer came too late."""
        for found in await self._control.list_by_metadata(self._endings.metadata_of_kind(kind)):
            folder = self._folder_of(
                RunId(kind, found.metadata["owner"], found.metadata["attempt"])
            )
            expected = folder.sandbox_id()
            is_starting = expected is None and isinstance(folder.state(), Starting)
            if not is_starting and (
                expected != found.sandbox_id or isinstance(folder.state(), Ended | None)
            ):
                await self._control.kill(found.sandbox_id)


def cpu_seconds(measured: "Sequence[SandboxMetrics]", *, since_at: float) -> float:
    """What the processors were busy for, from the shares that E2B measured now and then."""
    total = 0.0
    for each in measured:
        at = each.timestamp.timestamp()
        total += max(0.0, at - since_at) * each.cpu_used_pct / 100 * each.cpu_count
        since_at = max(since_at, at)
    return total
