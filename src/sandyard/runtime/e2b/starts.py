"""How a program at E2B is started: a sandbox is made and filled, and the program listens."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from sandyard.runtime.builtin import builtin_files
from sandyard.runtime.e2b.control import E2bControl
from sandyard.runtime.e2b.endings import Endings
from sandyard.runtime.e2b.errors import E2bGoneError, E2bRefusedError
from sandyard.runtime.e2b.records import E2bRunFolder
from sandyard.runtime.e2b.session import Session
from sandyard.runtime.errors import (
    StartFailedError,
    StoppedWhileStartingError,
    exited_at_once,
    not_listening,
)
from sandyard.runtime.lifecycle import TAIL_LINES, web_command
from sandyard.runtime.model import (
    FileChanges,
    Files,
    Limits,
    Program,
    Repository,
    Running,
    log_lines,
)
from sandyard.runtime.repositories import BUILTIN, check_url
from sandyard.runtime.requests import check_environment, check_sizes

_STATIC_SITE = 'exec python3 -m http.server "$PORT"'
_POLL_SEC = 0.1
_GONE = "E2B ended its sandbox before the program listened. Start again."


@dataclass(frozen=True, slots=True)
class E2bPolicy:
    """How the runtime at E2B goes about its work."""

    node: str
    """Whose sandboxes these are, among all that the key has."""
    template: str = "base"
    prepare_timeout_sec: float = 60
    listen_timeout_sec: float = 30


def check_request(program: Program, limits: Limits) -> None:
    """Raises InvalidError if this can't be tried."""
    check_environment(program.environment)
    source = program.source
    if isinstance(source, Files):
        check_sizes(source.contents, limits)
    elif program.snapshot_id is None and source.url.startswith(BUILTIN):
        builtin_files(source.url)
    elif program.snapshot_id is None:
        check_url(source.url)


class Starts:
    def __init__(self, control: E2bControl, endings: Endings, policy: E2bPolicy) -> None:
        self._control = control
        self._endings = endings
        self._policy = policy

    async def run(self, folder: E2bRunFolder, program: Program, limits: Limits) -> None:
        """Start the program and record how that went. Raises UnavailableError if that is not
        known: who finds the record without its lock gives the start up."""
        await asyncio.to_thread(folder.begin, limits)
        starting = asyncio.create_task(self._start(folder, program, limits))
        stopped = asyncio.create_task(_until_stop_is_requested(folder))
        try:
            await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                raise StoppedWhileStartingError
            starting.result()
        except (StartFailedError, E2bGoneError) as error:
            await _cancel(starting)
            why = error if isinstance(error, StartFailedError) else StartFailedError(_GONE)
            await self._endings.fail_start(folder, why)
        finally:
            await _cancel(starting, stopped)

    async def _start(self, folder: E2bRunFolder, program: Program, limits: Limits) -> None:
        session = await self._create(folder, program, limits)
        if program.snapshot_id is None:
            await self._fill(session, program.source)
        static_site = None if isinstance(program.source, Repository) else _STATIC_SITE
        command = web_command(await session.procfile(), static_site=static_site)
        await session.launch(command, run_id=folder.run_id, environment=program.environment)
        started_at = await asyncio.to_thread(folder.write_launched)
        await self._listen(session, folder)
        await self._record_running(session.sandbox_id, folder, limits, started_at=started_at)

    async def _create(self, folder: E2bRunFolder, program: Program, limits: Limits) -> Session:
        policy = self._policy
        prepare_sec = policy.prepare_timeout_sec + policy.listen_timeout_sec
        try:
            session = await self._control.create(
                program.snapshot_id or policy.template,
                lifetime_sec=max(limits.max_running_sec, prepare_sec),
                metadata=self._endings.metadata_of(folder.run_id),
            )
        except E2bRefusedError as error:
            raise StartFailedError(f"E2B refused to make a sandbox ({error.reason}).") from error
        await asyncio.to_thread(folder.write_sandbox_id, session.sandbox_id)
        return session

    async def _fill(self, session: Session, source: Repository | Files) -> None:
        if isinstance(source, Files):
            files: Mapping[str, bytes] = source.contents
        elif source.url.startswith(BUILTIN):
            files = builtin_files(source.url)
        else:
            timeout_sec = self._policy.prepare_timeout_sec
            return await session.clone(source.url, timeout_sec=timeout_sec)
        return await session.apply(FileChanges(written=files))

    async def _listen(self, session: Session, folder: E2bRunFolder) -> None:
        timeout_sec = self._policy.listen_timeout_sec
        if await session.listens(timeout_sec=timeout_sec):
            return
        log = await session.read_log()
        folder.save_log(log)
        code = await session.exit_code()
        lines = log_lines(log.content)[-TAIL_LINES:]
        if code is not None:
            raise exited_at_once(code, lines)
        raise not_listening(timeout_sec, lines)

    async def _record_running(
        self, sandbox_id: str, folder: E2bRunFolder, limits: Limits, *, started_at: float
    ) -> None:
        """What it may run begins now; until when that lasts, E2B says."""
        url = await self._control.url(sandbox_id)
        deadline_at = await self._control.set_timeout(
            sandbox_id, lifetime_sec=limits.max_running_sec
        )
        running = Running(folder.run_id, url, started_at, deadline_at)
        await asyncio.to_thread(folder.write_running, running)


async def _until_stop_is_requested(folder: E2bRunFolder) -> None:
    while not folder.stop_is_requested():  # noqa: ASYNC110 - another process may ask for it
        await asyncio.sleep(_POLL_SEC)


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
