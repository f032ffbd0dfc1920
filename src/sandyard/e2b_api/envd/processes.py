"""`process.Process`: commands and terminals in a sandbox."""

import base64
import binascii
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sandyard.e2b_api.envd.connect import Message
from sandyard.e2b_api.envd.machine import UserSession
from sandyard.e2b_api.envd.paths import whole_path
from sandyard.e2b_api.errors import DeadlineExceededError, InvalidRequestError
from sandyard.kit.concurrency.tasks import Background
from sandyard.kit.errors import ConflictError, InvalidError, NotFoundError
from sandyard.runtime import errors
from sandyard.runtime.sessions.model import (
    Command,
    FileSelection,
    Output,
    Process,
    TerminalSize,
)
from sandyard.runtime.sessions.ports import Processes

OWN_TAG = "sandyard-code-interpreter"
"""The tag of the process that serves the code interpreter: nobody's command, so that no call shows
or finds it."""
KEEPALIVE: Message = {"event": {"keepalive": {}}}
_STREAMS = {"stdout": "stdout", "stderr": "stderr", "terminal": "pty"}
_SIGNALS = {"SIGNAL_SIGTERM": signal.SIGTERM, "SIGNAL_SIGKILL": signal.SIGKILL}
_WORDS: Mapping[int, str] = {signal.SIGABRT: "aborted"}
"""Signals that E2B's agent names differently than the C library."""
_DEFAULT_SIZE = TerminalSize()
_MOST_CELLS = 10_000
_ONE = FileSelection(limit=1)


class ProcessService:
    """Each call takes the request message and returns the response message."""

    def __init__(self) -> None:
        self._limits = Background()

    async def list(self, session: UserSession, _message: Message) -> Message:
        running = await _running(session.session.processes)
        return {"processes": [_process_body(each) for each in running]}

    async def start(
        self, session: UserSession, message: Message, deadline_sec: float | None
    ) -> AsyncIterator[Message]:
        """Start it and stream its output. It continues if the caller disconnects, but not beyond
        its deadline."""
        command = await self._command(session, message)
        processes, is_begun = session.session.processes, False
        async for each in processes.run(command):
            if isinstance(each, Output):
                if each.data:
                    yield {"event": {"data": _data(each)}}
            elif not is_begun:
                is_begun = True
                if deadline_sec is not None:
                    limit = _kill_after(processes, each.id, deadline_sec)
                    self._limits.start(limit, action="deadline")
                yield _started(each)
            else:
                yield _ended(each)

    async def connect(
        self, session: UserSession, message: Message, _deadline_sec: float | None
    ) -> AsyncIterator[Message]:
        """Its output from now on."""
        processes = session.session.processes
        process = await _selected(processes, message)
        offset = 0
        async for output in processes.output(process.id):
            offset = output.offset
        async for event in _events(processes, process, offset=offset):
            yield event

    async def send_input(self, session: UserSession, message: Message) -> Message:
        processes = session.session.processes
        process = await _selected(processes, message)
        await _write(processes, process, _part(message, "input"))
        return {}

    async def stream_input(self, session: UserSession, messages: AsyncIterator[Message]) -> None:
        processes, process = session.session.processes, None
        async for message in messages:
            event = message.get("event", message)
            if "start" in event:
                process = await _selected(processes, _part(event, "start"))
            elif "data" in event:
                if process is None:
                    raise InvalidRequestError("The first message must name the process.")
                await _write(processes, process, _part(_part(event, "data"), "input"))

    async def close_stdin(self, session: UserSession, message: Message) -> Message:
        processes = session.session.processes
        await processes.close_input((await _selected(processes, message)).id)
        return {}

    async def send_signal(self, session: UserSession, message: Message) -> Message:
        processes = session.session.processes
        wanted = message.get("signal")
        number = _SIGNALS.get(wanted) if isinstance(wanted, str) else wanted
        if not isinstance(number, int) or not 0 < number < signal.NSIG:
            raise InvalidRequestError(f"{wanted!r} is not a signal that can be sent.")
        process = await _selected(processes, message)
        await processes.signal(process.id, int(number))
        return {}

    async def update(self, session: UserSession, message: Message) -> Message:
        processes = session.session.processes
        process = await _selected(processes, message)
        if "pty" in message:
            await processes.resize(process.id, _size(_part(message, "pty")))
        return {}

    async def _command(self, session: UserSession, message: Message) -> Command:
        config = _part(message, "process")
        envs = _strings(config.get("envs", {}))
        environment = {**await session.machine.variables(session), **envs}
        folder = whole_path(str(config.get("cwd") or session.folder), session.home)
        await _require_folder(session, folder)
        has_terminal = "pty" in message
        arguments = config.get("args") or []
        if not isinstance(arguments, list):
            raise InvalidRequestError("`args` must be a list of strings.")
        return Command(
            arguments=(str(config.get("cmd", "")), *map(str, arguments)),
            environment=environment,
            folder=folder,
            user=session.account.ids,
            terminal=_size(_part(message, "pty")) if has_terminal else None,
            has_input=not has_terminal and message.get("stdin") is not False,
            tag=str(message["tag"]) if message.get("tag") else None,
        )


async def _kill_after(processes: Processes, process_id: str, seconds: float) -> None:
    with suppress(errors.ProcessNotFoundError, errors.NotRunningError):
        process = await processes.wait(process_id, timeout_sec=seconds)
        if process.is_running:
            await processes.signal(process_id, signal.SIGKILL)


async def _events(processes: Processes, process: Process, *, offset: int) -> AsyncIterator[Message]:
    yield _started(process)
    async for output in processes.output(process.id, offset=offset, follow=True):
        if output.data:
            yield {"event": {"data": _data(output)}}
    yield _ended(await processes.wait(process.id))


def _started(process: Process) -> Message:
    return {"event": {"start": {"pid": process.pid}}}


def _ended(process: Process) -> Message:
    if process.exit_code is None:
        raise DeadlineExceededError
    return {"event": {"end": _end(process.exit_code, process.signal)}}


def _data(output: Output) -> dict[str, str]:
    return {_STREAMS[output.stream]: base64.b64encode(output.data).decode()}


def _end(exit_code: int, ended_by: int | None) -> dict[str, Any]:
    if ended_by is not None:
        status = f"signal: {_WORDS.get(ended_by) or signal.strsignal(ended_by)}".lower()
        return {"exitCode": -1, "exited": False, "status": status, "error": status}
    status = f"exit status {exit_code}"
    body = {"exitCode": exit_code, "exited": True, "status": status}
    return body if exit_code == 0 else body | {"error": status}


async def _require_folder(session: UserSession, folder: str) -> None:
    """A refused command would not say whether the program or the folder is missing."""
    if folder == session.home:
        return
    try:
        await session.session.files.list(folder, selection=_ONE)
    except (NotFoundError, ConflictError, InvalidError) as error:
        raise errors.CommandRefusedError(f"cwd '{folder}' does not exist") from error


async def _running(processes: Processes) -> Sequence[Process]:
    return [each for each in await processes.list() if each.is_running and each.tag != OWN_TAG]


async def _selected(processes: Processes, message: Message) -> Process:
    selector = _part(message, "process")
    pid, tag = selector.get("pid"), selector.get("tag")
    for process in reversed(await _running(processes)):
        if process.pid == pid if pid is not None else process.tag == tag is not None:
            return process
    raise errors.ProcessNotFoundError(
        f"process with {'pid' if pid is not None else 'tag'} not found"
    )


async def _write(processes: Processes, process: Process, sent: Message) -> None:
    is_typed = "pty" in sent
    if is_typed and not process.is_terminal:
        raise errors.NotATerminalError
    try:
        data = base64.b64decode(sent.get("pty" if is_typed else "stdin", ""), validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise InvalidRequestError("Input must be base64.") from error
    if data:
        await processes.write_input(process.id, data)


def _size(pty: Message) -> TerminalSize:
    """Raises InvalidRequestError."""
    size = _part(pty, "size")
    columns = size.get("cols") or _DEFAULT_SIZE.columns
    rows = size.get("rows") or _DEFAULT_SIZE.rows
    if not all(type(each) is int and 0 < each <= _MOST_CELLS for each in (columns, rows)):
        raise InvalidRequestError(f"A terminal has 1 to {_MOST_CELLS} columns and rows.")
    return TerminalSize(columns, rows)


def _process_body(process: Process) -> Mapping[str, Any]:
    program, *arguments = process.arguments
    config = {"cmd": program, "args": arguments, "cwd": process.folder}
    body: dict[str, Any] = {"config": config, "pid": process.pid}
    return body if process.tag is None else body | {"tag": process.tag}


def _part(message: Message, name: str) -> Message:
    part = message.get(name, {})
    if not isinstance(part, dict):
        raise InvalidRequestError(f"`{name}` must be an object.")
    return part


def _strings(pairs: Any) -> dict[str, str]:
    if not isinstance(pairs, dict):
        raise InvalidRequestError("Variables must be an object of strings.")
    return {str(name): str(value) for name, value in pairs.items()}
