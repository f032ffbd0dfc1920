"""How a program at E2B is started: a sandbox is made and filled, and the program listens."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from sandyard.platform.runtime.e2b.control import E2bControl
from sandyard.platform.runtime.e2b.endings import Endings
from sandyard.platform.runtime.e2b.errors import E2bGoneError, E2bRefusedError
from sandyard.platform.runtime.e2b.inside import Inside
from sandyard.platform.runtime.e2b.records import Record
from sandyard.platform.runtime.errors import (
    ExitedAtOnceError,
    NotListeningError,
    ProcfileMissingError,
    StartFailedError,
    StoppedWhileStartingError,
    WebLineMissingError,
)
from sandyard.platform.runtime.local.builtin import builtin_files
from sandyard.platform.runtime.local.specs import check_environment, check_sizes
from sandyard.platform.runtime.model import (
    FileChanges,
    Files,
    Limits,
    Program,
    Repository,
    Running,
    web_line,
)
from sandyard.platform.runtime.repositories import BUILTIN, check_url

_STATIC_SITE = 'exec python3 -m http.server "$PORT"'
_LINES_TOLD = 20
_LOOK_SEC = 0.1
_GONE = "E2B ended its sandbox before the program listened. Start again."


@dataclass(frozen=True, slots=True)
class E2bPolicy:
    """How the runtime at E2B goes about its work."""

    node: str
    """Whose sandboxes these are, among all that the key has."""
    template: str = "base"
    prepare_timeout_sec: float = 60
    listen_timeout_sec: float = 30


def check_order(program: Program, limits: Limits) -> None:
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

    async def run(self, record: Record, program: Program, limits: Limits) -> None:
        """Start the program and record how that went. Raises UnavailableError if that is not
        known: who finds the record without its lock gives the start up."""
        await asyncio.to_thread(record.begin, limits)
        starting = asyncio.create_task(self._start(record, program, limits))
        stopped = asyncio.create_task(_until_stop_is_requested(record))
        try:
            await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                raise StoppedWhileStartingError
            starting.result()
        except (StartFailedError, E2bGoneError) as error:
            await _cancel(starting)
            why = error if isinstance(error, StartFailedError) else StartFailedError(_GONE)
            await self._endings.give_up(record, why)
        finally:
            await _cancel(starting, stopped)

    async def _start(self, record: Record, program: Program, limits: Limits) -> None:
        inside = await self._make(record, program, limits)
        if program.snapshot_id is None:
            await self._fill(inside, program.source)
        command = await _command(inside, program)
        await inside.launch(command, owner=record.owner, environment=program.environment)
        await self._listen(inside, record)
        await self._record_running(inside.sandbox_id, record, limits)

    async def _make(self, record: Record, program: Program, limits: Limits) -> Inside:
        policy = self._policy
        prepare_sec = policy.prepare_timeout_sec + policy.listen_timeout_sec
        try:
            inside = await self._control.create(
                program.snapshot_id or policy.template,
                lives_sec=max(limits.max_running_sec, prepare_sec),
                metadata=self._endings.metadata_of(record.owner),
            )
        except E2bRefusedError as error:
            raise StartFailedError(f"E2B refused to make a sandbox ({error.reason}).") from error
        await asyncio.to_thread(record.write_sandbox_id, inside.sandbox_id)
        return inside

    async def _fill(self, inside: Inside, source: Repository | Files) -> None:
        if isinstance(source, Files):
            files: Mapping[str, bytes] = source.contents
        elif source.url.startswith(BUILTIN):
            files = builtin_files(source.url)
        else:
            timeout_sec = self._policy.prepare_timeout_sec
            return await inside.clone(source.url, timeout_sec=timeout_sec)
        return await inside.apply(FileChanges(written=files))

    async def _listen(self, inside: Inside, record: Record) -> None:
        timeout_sec = self._policy.listen_timeout_sec
        if await inside.listens(timeout_sec=timeout_sec):
            return
        log = await inside.read_log()
        record.save_log(log)
        code = await inside.exit_code()
        lines = log.content.decode(errors="replace").splitlines()[-_LINES_TOLD:]
        last_words = " Its last lines:\n" + "\n".join(lines) if lines else ""
        if code is not None:
            raise ExitedAtOnceError(
                f"The program ended with code {code} before it listened on $PORT." + last_words
            )
        raise NotListeningError(
            f"The program did not listen on $PORT within {timeout_sec:g} s. Let its `web:` "
            "line serve on that port." + last_words
        )

    async def _record_running(self, sandbox_id: str, record: Record, limits: Limits) -> None:
        """Its time begins now; until when it lasts, E2B says."""
        url = await self._control.url(sandbox_id)
        started_at = time.time()
        ends_at = await self._control.set_end(sandbox_id, lives_sec=limits.max_running_sec)
        running = Running(record.owner, url, started_at, ends_at)
        await asyncio.to_thread(record.write_running, running)


async def _command(inside: Inside, program: Program) -> str:
    procfile = await inside.procfile()
    if procfile is None:
        if isinstance(program.source, Repository):
            raise ProcfileMissingError
        return _STATIC_SITE
    command = web_line(procfile)
    if command is None:
        raise WebLineMissingError
    return command


async def _until_stop_is_requested(record: Record) -> None:
    while not record.stop_is_requested():  # noqa: ASYNC110 - another process may ask for it
        await asyncio.sleep(_LOOK_SEC)


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
