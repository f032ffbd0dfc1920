"""`ports.Runtime` over any machines: prepares one, runs its program, and reports its state.

A start is carried out by the server that began it. If that server dies, the next lookup aborts the
start: its machine is ended, and nothing of it is left.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from sandyard.kit.clock import Clock
from sandyard.kit.lines import LineReader
from sandyard.kit.wired import wired
from sandyard.runtime import errors
from sandyard.runtime.machine_ports import Machines
from sandyard.runtime.model import (
    LOG_LINE_BYTES,
    Ended,
    FileChanges,
    IsolationMode,
    Kind,
    Limits,
    Log,
    MachineState,
    Program,
    RunId,
    Running,
    RunState,
    Sample,
    Snapshot,
    Starting,
    Up,
    last_lines,
    log_line,
)
from sandyard.runtime.network_model import NO_RULES, EgressReport, EgressRules, Network
from sandyard.runtime.programs.followers import LogFollowers
from sandyard.runtime.programs.lifecycle import (
    TAIL_LINES,
    check_ended,
    check_program,
    check_sizes,
    check_startable,
    require_ended,
    require_run,
    require_running,
    require_started,
    run_state,
    start_failure_of,
    wait_until,
)
from sandyard.runtime.programs.start import ProgramStart, ProgramTimeouts
from sandyard.runtime.records.recorded_run import (
    RunRecord,
    RunRecords,
    begun_record,
    failure_record,
)
from sandyard.runtime.secrets_model import MachineSecrets
from sandyard.runtime.sessions.model import WORKSPACE
from sandyard.runtime.sessions.ports import Session
from sandyard.runtime.store.archives import ArchiveFolder

logger = logging.getLogger(__name__)

_POLL_SEC = 0.01


@wired
class ProgramRunner:
    machines: Machines
    records: RunRecords
    archives: ArchiveFolder
    timeouts: ProgramTimeouts
    clock: Clock

    def __post_init__(self) -> None:
        self._followers = LogFollowers(self._read_on)

    async def check(self, isolation: IsolationMode | None = None) -> None:
        await self.machines.check(isolation)

    async def start(self, run_id: RunId, program: Program, limits: Limits) -> Running:
        check_startable(await self.refresh(run_id))
        check_program(program, limits)
        record = self.records.of(run_id)
        await self._require_snapshot(record, program)
        while not await self._begin(record, run_id, program, limits):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SEC)
        timeouts = self.timeouts
        timeout_sec = timeouts.prepare_timeout_sec + timeouts.listen_timeout_sec + 30
        run = await self._wait(run_id, lambda run: not isinstance(run, Starting), timeout_sec)
        failed = isinstance(run, Ended) and not run.has_run
        lines = await self.tail_logs(run_id, lines=TAIL_LINES) if failed else []
        started = require_started(run, record.running(), log_lines=lines)
        return replace(started, program=record.program())

    async def start_program(self, run_id: RunId, program: Program) -> Running:
        running = await self.stop_program(run_id)
        check_program(program, self.records.of(run_id).limits())
        up = Up(run_id, running.port, running.started_at, running.deadline_at)
        start = self._start_of(self.records.of(run_id))
        await start.launch(await self.machines.session(run_id), up, program)
        return require_running(await self.refresh(run_id))

    async def stop_program(self, run_id: RunId) -> Running:
        require_running(await self.refresh(run_id))
        await self.machines.stop_program(run_id)
        return require_running(await self.refresh(run_id))

    async def stop(self, run_id: RunId, *, has_memory: bool = False) -> Ended:
        record = self.records.of(run_id)
        if not has_memory and isinstance(await self.find(run_id), Starting):
            await record.put_stop()  # before `refresh` aborts a start whose server is gone
        run = require_run(await self.refresh(run_id))
        if isinstance(run, Ended):
            return run
        if not has_memory:
            await record.put_stop()
        await self.machines.stop(run_id, has_memory=has_memory)
        return require_ended(await self._wait(run_id, _is_over, self.timeouts.end_timeout_sec))

    async def find(self, run_id: RunId) -> RunState | None:
        return await self._state(run_id, await self.machines.find(run_id))

    async def refresh(self, run_id: RunId) -> RunState | None:
        run = await self._state(run_id, await self.machines.refresh(run_id))
        if not isinstance(run, Starting):
            return run
        record = self.records.of(run_id)
        async with record.start_lock() as is_ours:
            if is_ours and isinstance(run := await self.find(run_id), Starting):
                # The server that began the start is gone: abort it.
                await self._abort(record, run_id, errors.SupervisorLostError())
                run = await self.find(run_id)
        return run

    async def _state(self, run_id: RunId, machine: MachineState | None) -> RunState | None:
        return await asyncio.to_thread(run_state, run_id, self.records.of(run_id), machine)

    async def run_ids(self, kind: Kind) -> Sequence[RunId]:
        return await self.machines.run_ids(kind)

    async def versions(self, kind: Kind) -> Mapping[RunId, object]:
        return await self.machines.versions(kind)

    async def list_runs(self, kind: Kind) -> Sequence[RunState]:
        found = []
        for run_id in await self.run_ids(kind):
            try:
                found.append(await self.refresh(run_id))
            except errors.RecordBrokenError as error:
                extra = {"run_id": str(run_id), "reason": error.reason}
                logger.warning("a run could not be looked up", extra=extra)
        return [run for run in found if run is not None]

    async def forget(self, run_id: RunId) -> None:
        run = await self.refresh(run_id)
        if run is not None:
            check_ended(run)
            await self.machines.forget(run_id)

    async def extend(
        self, run_id: RunId, *, deadline_at: float, keeps_memory: bool | None = None
    ) -> Running:
        running = require_running(await self.refresh(run_id))
        moved = await self.machines.set_deadline(run_id, deadline_at, keeps_memory=keeps_memory)
        return replace(running, deadline_at=moved)

    async def sample(self, run_id: RunId) -> Sample:
        require_running(await self.find(run_id))
        return await self.machines.sample(run_id)

    async def set_network(
        self, run_id: RunId, network: Network, rules: EgressRules = NO_RULES
    ) -> None:
        require_running(await self.find(run_id))
        await self.machines.set_network(run_id, network, rules)

    async def set_secrets(self, run_id: RunId, secrets: MachineSecrets) -> None:
        require_running(await self.find(run_id))
        await self.machines.set_secrets(run_id, secrets)

    async def egress_report(self, run_id: RunId) -> EgressReport:
        require_run(await self.find(run_id))
        return await self.machines.egress_report(run_id)

    async def session(self, run_id: RunId) -> Session:
        # Entering the machine checks whether it is up: once is enough.
        if not self.records.of(run_id).says_running():
            require_running(await self.find(run_id))
        return await self.machines.session(run_id)

    async def tail_logs(self, run_id: RunId, *, lines: int) -> Sequence[str]:
        require_run(await self.find(run_id))
        log = await self.machines.read_log(run_id, None)
        return await asyncio.to_thread(last_lines, log.content, lines)

    async def follow_logs(self, run_id: RunId, *, lines: int = 0) -> AsyncIterator[str]:
        require_run(await self.find(run_id))
        reader, is_first = LineReader(LOG_LINE_BYTES), True
        async with aclosing(self._followers.follow(run_id)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                written = reader.feed(piece.content)
                for line in written[max(0, len(written) - lines) :] if is_first else written:
                    yield log_line(line)
                is_first = False
        for line in reader.end():
            yield log_line(line)

    async def _read_on(self, run_id: RunId, begin: int | None) -> tuple[Log, bool]:
        """What was written from there on, and whether the run has ended before."""
        run = await self.refresh(run_id)
        if run is None:
            return Log(begin or 0, b""), True
        return await self.machines.read_log(run_id, begin), isinstance(run, Ended)

    async def write_files(self, run_id: RunId, changes: FileChanges) -> None:
        require_running(await self.find(run_id))
        named = dict.fromkeys(changes.deleted, b"") | dict(changes.written)
        check_sizes(named, self.records.of(run_id).limits())
        session = await self.machines.session(run_id)
        await session.files.apply(changes)

    async def save_archive(
        self, run_id: RunId, archive_id: str, *, has_memory: bool = False
    ) -> Snapshot:
        session = await self.session(run_id)
        await self.machines.check()
        to = await self.archives.place(archive_id)
        if await self.machines.pack(run_id, to, has_memory=has_memory):
            return await self.archives.store(archive_id)
        return await self.archives.write(archive_id, session.files.read_tar(WORKSPACE))

    async def list_archives(self) -> Sequence[Snapshot]:
        return await self.archives.list_all()

    async def delete_archive(self, archive_id: str) -> None:
        await self.archives.delete(archive_id)

    async def has_snapshot(self, snapshot_id: str) -> bool:
        return await self.machines.has_snapshot(snapshot_id)

    async def list_snapshots(self) -> Sequence[Snapshot]:
        return await self.machines.list_snapshots()

    async def store_snapshot(self, snapshot_id: str, *, timeout_sec: float | None = None) -> None:
        await self.machines.store_snapshot(snapshot_id, timeout_sec=timeout_sec)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self.machines.delete_snapshot(snapshot_id)

    async def _wait(
        self, run_id: RunId, is_done: Callable[[RunState | None], bool], timeout_sec: float
    ) -> RunState | None:
        try:
            return await wait_until(is_done, partial(self.refresh, run_id), timeout_sec=timeout_sec)
        except TimeoutError as error:
            raise errors.RuntimeUnavailableError(reason=f"{run_id} did not change") from error

    async def _require_snapshot(self, record: RunRecord, program: Program) -> None:
        if record.begun_at() is not None:
            return
        if program.snapshot_id is None:
            if program.archive_id is not None:
                await self.archives.require(program.archive_id)
        else:
            await self.machines.require_snapshot(program.snapshot_id)

    async def _begin(
        self, record: RunRecord, run_id: RunId, program: Program, limits: Limits
    ) -> bool:
        """Start it, unless it was already begun: of concurrent calls, one gets the lock. Returns
        whether it was begun."""
        async with record.start_lock() as is_ours:
            if is_ours and record.begun_at() is None:
                await record.put("begun", begun_record(limits, self.clock.now()))
                await self._start(record, run_id, program, limits)
        return record.begun_at() is not None

    async def _start(
        self, record: RunRecord, run_id: RunId, program: Program, limits: Limits
    ) -> None:
        """Start it, or record why it did not start. Raises UnavailableError if that is unknown: the
        next lookup that finds the record unlocked aborts the start."""
        try:
            await self._start_of(record).run(run_id, program, limits)
        except errors.StartFailedError as error:
            await self._abort(record, run_id, error)
        except (errors.NotRunningError, errors.RunNotFoundError):
            await self._abort(record, run_id, None)

    def _start_of(self, record: RunRecord) -> ProgramStart:
        return ProgramStart(self.machines, record, self.archives, self.timeouts, self.clock)

    async def _abort(
        self, record: RunRecord, run_id: RunId, error: errors.StartFailedError | None
    ) -> None:
        """End its machine, and record why; without an error, by the machine's end."""
        error = errors.StoppedWhileStartingError() if record.stop_is_requested() else error
        await self.machines.stop(run_id)
        machine: MachineState | None = await wait_until(
            lambda machine: isinstance(machine, Ended | None),
            partial(self.machines.refresh, run_id),
            timeout_sec=self.timeouts.end_timeout_sec,
        )
        if error is None:
            log = await self.machines.read_log(run_id, None)
            error = start_failure_of(machine, last_lines(log.content, TAIL_LINES))
        ended_at = machine.ended_at if isinstance(machine, Ended) else self.clock.now()
        await record.put("failure", failure_record(error.code, error.message, ended_at))


def _is_over(run: RunState | None) -> bool:
    return isinstance(run, Ended | None)
