"""`session_ports.Processes` of a machine at E2B: each has a shim inside, which outlives us."""

import base64
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from secrets import token_hex
from typing import Any

from sandyard.runtime.errors import (
    CommandRefusedError,
    InputClosedError,
    InvalidPathError,
    ProcessNotFoundError,
)
from sandyard.runtime.remote import sdk as kit
from sandyard.runtime.remote.connection import Channel, reading_answer
from sandyard.runtime.remote.guest_code import STATE
from sandyard.runtime.sessions.followed_run import run_in_steps
from sandyard.runtime.sessions.model import (
    PROCESS_ID,
    Command,
    Output,
    Process,
    TerminalSize,
    absolute_path,
)

PROGRAM = "program"
"""The id of the machine's main program."""
_USER = "user"
_WAIT_SEC = 20
"""How long one request waits for an end."""
_INPUT_BYTES = 64 * 1024
_CLOSED = ("failed", "other")
"""E2B's answers for a process that accepts no input: it has no specific one."""


class E2bProcesses:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def start(self, command: Command) -> Process:
        if command.user not in (None, _USER):
            raise CommandRefusedError(f"At E2B, commands run as {_USER!r}.")
        process_id = PROGRAM if command.is_program else token_hex(8)
        sent = json.dumps(_description(command)).encode()
        await self._channel.upload({f"{STATE}/processes/{process_id}/command.json": sent})
        has_input = command.has_input or command.terminal is not None
        return _process(
            await self._channel.begin("start", has_input=has_input, process_id=process_id)
        )

    def run(self, command: Command) -> AsyncGenerator[Process | Output]:
        return run_in_steps(self, command)

    async def list(self) -> Sequence[Process]:
        return [_process(each) for each in await self._channel.ask("list_all")]

    async def get(self, process_id: str) -> Process:
        return _process(await self._get(process_id))

    async def wait(self, process_id: str, *, timeout_sec: float | None = None) -> Process:
        until = None if timeout_sec is None else time.monotonic() + timeout_sec
        while True:
            left = _WAIT_SEC if until is None else until - time.monotonic()
            wait_sec = max(0.0, min(left, _WAIT_SEC))
            process = _process(
                await self._channel.ask(
                    "wait",
                    more_sec=wait_sec,
                    process_id=_checked(process_id),
                    timeout_sec=wait_sec,
                )
            )
            if not process.is_running or (until is not None and time.monotonic() >= until):
                return process

    async def output(
        self, process_id: str, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[Output]:
        arguments = {"process_id": _checked(process_id), "offset": offset, "wait": follow}
        async with aclosing(self._channel.stream("follow", **arguments)) as outputs:
            async for each in outputs:
                yield _output(each)

    async def write_input(self, process_id: str, data: bytes) -> None:
        shim = await self._shim(process_id)
        for begin in range(0, len(data), _INPUT_BYTES):
            await self._write_input(shim, data[begin : begin + _INPUT_BYTES])

    async def close_input(self, process_id: str) -> None:
        from e2b import SandboxException

        answer = await self._get(process_id)
        if not answer["has_input"] or not _process(answer).is_running:
            return
        async with self._channel.reaching():
            try:
                await self._channel.sandbox.commands.close_stdin(int(answer["shim"]))
            except SandboxException as error:
                if kit.trouble_of(error) not in _CLOSED:
                    raise

    async def resize(self, process_id: str, size: TerminalSize) -> None:
        await self._channel.ask(
            "resize", process_id=_checked(process_id), columns=size.columns, rows=size.rows
        )

    async def signal(self, process_id: str, number: int) -> None:
        await self._channel.ask("signal", process_id=_checked(process_id), number=int(number))

    async def _get(self, process_id: str) -> Any:
        return await self._channel.ask("get", process_id=_checked(process_id))

    async def _shim(self, process_id: str) -> int:
        """The pid of the shim, which takes its input. Raises InputClosedError."""
        answer = await self._get(process_id)
        with reading_answer():
            takes_input = answer["has_input"] or answer["is_terminal"]
            shim = int(answer["shim"])
        if not takes_input or not _process(answer).is_running:
            raise InputClosedError
        return shim

    async def _write_input(self, shim: int, data: bytes) -> None:
        from e2b import SandboxException

        async with self._channel.reaching(None):
            try:
                await self._channel.sandbox.commands.send_stdin(shim, data)
            except SandboxException as error:
                if kit.trouble_of(error) in _CLOSED:
                    raise InputClosedError from error
                raise


def _description(command: Command) -> dict[str, Any]:
    try:
        folder = absolute_path(command.folder)
    except InvalidPathError as error:
        raise CommandRefusedError from error
    size = command.terminal
    return {
        "arguments": list(command.arguments),
        "environment": dict(command.environment),
        "folder": folder,
        "terminal": [size.columns, size.rows] if size else None,
        "has_input": command.has_input,
        "tag": command.tag,
        "is_program": command.is_program,
    }


def _checked(process_id: str) -> str:
    if not PROCESS_ID.fullmatch(process_id):
        raise ProcessNotFoundError
    return process_id


def _process(answer: Any) -> Process:
    with reading_answer():
        code, ended_at, tag = answer.get("exit_code"), answer.get("ended_at"), answer["tag"]
        return Process(
            id=str(answer["id"]),
            pid=int(answer["pid"]),
            arguments=tuple(map(str, answer["arguments"])),
            folder=str(answer["folder"]),
            started_at=float(answer["started_at"]),
            tag=None if tag is None else str(tag),
            is_terminal=bool(answer["is_terminal"]),
            exit_code=None if code is None else int(code),
            ended_at=None if ended_at is None else float(ended_at),
        )


def _output(answer: Any) -> Output:
    with reading_answer():
        data = base64.b64decode(answer["data"])
        return Output(answer["stream"], data, int(answer["offset"]), int(answer["skipped"]))
