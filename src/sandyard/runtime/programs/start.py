"""The steps of one start of a program in a machine."""

import asyncio
import time
from dataclasses import asdict, dataclass

from sandyard.kit.clock import Clock
from sandyard.runtime.errors import (
    CommandRefusedError,
    FileMissingError,
    FileRefusedError,
    OverLimitError,
    RunNotFoundError,
    StartFailedError,
    not_listening,
)
from sandyard.runtime.guest.program import ProgramState, starting
from sandyard.runtime.machine_ports import Machines
from sandyard.runtime.model import (
    EntryPoint,
    FileChanges,
    Files,
    ImageProgram,
    Limits,
    MachineSpec,
    Program,
    Repository,
    RunId,
    Running,
    StartCommand,
    Up,
    last_lines,
)
from sandyard.runtime.programs.lifecycle import TAIL_LINES, not_running, web_command
from sandyard.runtime.records.recorded_run import RunRecord, running_record
from sandyard.runtime.repositories import BUILTIN, builtin_files, clone, is_bare
from sandyard.runtime.sessions.model import WORKSPACE, Command
from sandyard.runtime.sessions.ports import Session
from sandyard.runtime.store.archives import ArchiveFolder

_POLL_SEC = 0.01
_LONGER, _LONGEST_SEC = 1.25, 0.1
"""Poll a program that takes long to listen less and less often."""
_STATIC_SITE = 'exec python3 -m http.server "$PORT" --bind 127.0.0.1'
_MOST_BYTES = 65536
START_TAG = "start"
"""Of the start command of a template that was built."""


@dataclass(frozen=True, slots=True)
class ProgramTimeouts:
    """Timeouts of the steps of a start and an end."""

    prepare_timeout_sec: float = 60
    listen_timeout_sec: float = 30
    end_timeout_sec: float = 150


@dataclass(frozen=True, slots=True)
class ProgramStart:
    _machines: Machines
    _record: RunRecord
    _archives: ArchiveFolder
    _timeouts: ProgramTimeouts
    _clock: Clock

    async def run(self, run_id: RunId, program: Program, limits: Limits) -> None:
        timeouts = self._timeouts
        lifetime_sec = max(
            limits.max_running_sec, timeouts.prepare_timeout_sec + timeouts.listen_timeout_sec
        )
        packed = self._archives.find_packed(program.archive_id)
        contents = (program.snapshot_id, program.network, program.root, packed, program.rules)
        spec = MachineSpec(
            limits,
            lifetime_sec,
            *contents,
            isolation=program.isolation,
            restores_memory=program.restores_memory and program.is_launched,
            authority=program.secrets.authority,
            mounts=program.mounts,
        )
        up = await self._machines.create(run_id, spec)
        if program.secrets.bound:
            await self._machines.set_secrets(run_id, program.secrets)
        session = await self._machines.session(run_id)
        if program.snapshot_id is None and packed is None:
            await self._fill(run_id, session, program)
        if await self._machines.workspace_bytes(run_id) > limits.storage_bytes:
            raise OverLimitError("The files are larger than the available storage.")
        if up.is_resumed:
            started_at = await self._note_launched(self._clock.now())
        else:
            started_at = await self.launch(session, up, program)
        deadline_at = await self._machines.set_deadline(
            run_id,
            self._clock.now() + limits.max_running_sec,
            keeps_memory=program.keeps_memory,
        )
        running = Running(run_id, up.port, started_at, deadline_at, isolation=up.isolation)
        await self._record.put("running", running_record(running))

    async def _fill(self, run_id: RunId, session: Session, program: Program) -> None:
        source = program.source
        if program.archive_id is not None:
            await session.files.write_tar(WORKSPACE, self._archives.read(program.archive_id))
        elif isinstance(source, Files):
            await session.files.apply(FileChanges(written=source.contents))
        elif isinstance(source, Repository) and source.url.startswith(BUILTIN):
            await session.files.apply(FileChanges(written=builtin_files(source.url)))
        elif isinstance(source, Repository):
            timeout_sec = self._timeouts.prepare_timeout_sec
            await clone(self._machines, run_id, session, source, timeout_sec=timeout_sec)

    async def launch(self, session: Session, up: Up, program: Program) -> float:
        """When its program was started; for a machine without one, the current time. Returns when
        it listens, has failed, or does not listen in time; the last two raise a StartFailedError
        if the machine is to end with it."""
        started_at = self._clock.now()  # before it can end
        if program.source is None:
            return await self._note_launched(started_at)
        if not program.is_launched:
            await self._note(ProgramState("stopped", started_at, program.policy))
            return await self._note_launched(started_at)
        is_started = False
        try:
            command = await self._command(session, up, program)
            if command is not None:
                await self._note(starting(started_at, program.policy))
                await session.processes.start(command)
                is_started = True
        except (StartFailedError, CommandRefusedError) as error:
            if program.policy == "ends_machine":
                raise
            await self._note(
                ProgramState("failed", started_at, program.policy, reason=error.message)
            )
        await self._note_launched(started_at)
        if is_started:
            await self._until_listening(up, program)
        return started_at

    async def _note_launched(self, at: float) -> float:
        await self._record.put("launched", {"at": at}, durable=False)
        return at

    async def _note(self, program: ProgramState) -> None:
        await self._record.put("program", asdict(program), durable=False)

    async def _command(self, session: Session, up: Up, program: Program) -> Command | None:
        """A Procfile's, or else its image's; None if there is nothing to run. Raises
        StartFailedError."""
        source = program.source
        if isinstance(source, StartCommand):
            return _start_command(source, program)
        folder = source.folder if isinstance(source, Repository) else None
        procfile = await read_procfile(session, folder)
        if procfile is None:
            if isinstance(source, Repository) and is_bare(source.url):
                return None
            entry = await self._machines.entry_point(up.run_id)
            if entry is not None or isinstance(source, ImageProgram):
                return None if entry is None else _entry_command(entry, program)
        static_site = _STATIC_SITE if isinstance(source, Files) else None
        return Command(
            ("/bin/sh", "-c", web_command(procfile, static_site=static_site)),
            {"PYTHONUNBUFFERED": "1", **program.environment, "PORT": str(up.port)},
            folder=f"{WORKSPACE}/{folder}" if folder else WORKSPACE,
            program=program.policy,
        )

    async def _until_listening(self, up: Up, program: Program) -> None:
        timeout_sec = self._timeouts.listen_timeout_sec
        until, pause_sec = time.monotonic() + timeout_sec, _POLL_SEC
        while True:
            if not isinstance(machine := await self._machines.refresh(up.run_id), Up):
                raise RunNotFoundError if machine is None else not_running(machine)
            state = self._record.program()
            if state is not None and state.is_start_over:
                return
            if time.monotonic() > until:
                break
            await asyncio.sleep(pause_sec)
            pause_sec = min(_LONGER * pause_sec, _LONGEST_SEC)
        if program.policy == "ends_machine":
            log = await self._machines.read_log(up.run_id, None)
            raise not_listening(timeout_sec, last_lines(log.content, TAIL_LINES))


def _start_command(source: StartCommand, program: Program) -> Command:
    """It counts as running at once. Bash finds the home of another user."""
    as_other = ("/bin/bash", "-c", 'unset HOME; HOME=~ exec "$@"', "bash") if source.user else ()
    return Command(
        (*as_other, "/bin/bash", "-l", "-c", source.line),
        program.environment,
        folder=source.folder,
        user=source.user,
        tag=START_TAG,
        program=program.policy,
    )


def _entry_command(entry: EntryPoint, program: Program) -> Command:
    """Without a port it counts as running at once."""
    port = {} if entry.port is None else {"PORT": str(entry.port)}
    return Command(
        tuple(entry.arguments),
        {"HOME": entry.home, **program.environment, **port},
        folder=entry.folder,
        user=f"{entry.user}:{entry.group}",
        program=program.policy,
    )


async def read_procfile(session: Session, folder: str | None) -> str | None:
    """The Procfile at the top, if it is a regular file."""
    path = f"{folder}/Procfile" if folder else "Procfile"
    try:
        if (await session.files.stat(path)).kind != "file":
            return None
        pieces = [piece async for piece in session.files.read(path, limit=_MOST_BYTES)]
    except (FileMissingError, FileRefusedError):
        return None
    return b"".join(pieces).decode(errors="replace")
