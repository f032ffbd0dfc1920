"""`sessions.ports.Processes` of a machine elsewhere: each has a shim inside, which outlives us."""

import base64
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from secrets import token_hex
from typing import Any

from sandyard.runtime import errors
from sandyard.runtime.guest.processes import PROGRAM
from sandyard.runtime.remote.connection import Connection
from sandyard.runtime.remote.errors import CallError
from sandyard.runtime.remote.guest import STATE
from sandyard.runtime.sessions.model import (
    PROCESS_ID,
    Command,
    Output,
    Process,
    TerminalSize,
    command_message,
)
from sandyard.runtime.sessions.ports import run_in_steps

_USER = "user"
_WAIT_SEC = 20
"""How long one request waits for an end."""
_INPUT_BYTES = 64 * 1024


class RemoteProcesses:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def start(self, command: Command) -> Process:
        process_id = PROGRAM if command.program else token_hex(8)
        sent = json.dumps(self._message(command)).encode()
        await self._connection.upload({f"{STATE}/processes/{process_id}/command.json": sent})
        has_input = command.has_input or command.terminal is not None
        return self._process(
            await self._connection.begin("start", has_input=has_input, process_id=process_id)
        )

    def _message(self, command: Command) -> dict[str, Any]:
        if command.user not in (None, _USER):
            raise errors.CommandRefusedError(f"In this machine, commands run as {_USER!r}.")
        try:
            return command_message(command)
        except errors.InvalidPathError as error:
            raise errors.CommandRefusedError from error

    def run(self, command: Command) -> AsyncGenerator[Process | Output]:
        return run_in_steps(self, command)

    async def list(self) -> Sequence[Process]:
        return [self._process(each) for each in await self._connection.ask("list_all")]

    async def get(self, process_id: str) -> Process:
        return self._process(await self._get(process_id))

    async def wait(self, process_id: str, *, timeout_sec: float | None = None) -> Process:
        until = None if timeout_sec is None else time.monotonic() + timeout_sec
        while True:
            left = _WAIT_SEC if until is None else until - time.monotonic()
            wait_sec = max(0.0, min(left, _WAIT_SEC))
            process = self._process(
                await self._connection.ask(
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
    ) -> AsyncGenerator[Output]:
        arguments = {"process_id": _checked(process_id), "offset": offset, "wait": follow}
        async with aclosing(self._connection.stream("follow", **arguments)) as outputs:
            async for each in outputs:
                yield self._output(each)

    async def write_input(self, process_id: str, data: bytes) -> None:
        shim = await self._shim(process_id)
        for begin in range(0, len(data), _INPUT_BYTES):
            piece = base64.b64encode(data[begin : begin + _INPUT_BYTES]).decode()
            await self._input("SendInput", shim, input={"stdin": piece})

    async def close_input(self, process_id: str) -> None:
        answer = await self._get(process_id)
        if answer["has_input"] and self._process(answer).is_running:
            with suppress(errors.InputClosedError):
                await self._input("CloseStdin", int(answer["shim"]))

    async def resize(self, process_id: str, size: TerminalSize) -> None:
        await self._connection.ask(
            "resize", process_id=_checked(process_id), columns=size.columns, rows=size.rows
        )

    async def signal(self, process_id: str, number: int) -> None:
        await self._connection.ask("signal", process_id=_checked(process_id), number=int(number))

    async def _get(self, process_id: str) -> Any:
        return await self._connection.ask("get", process_id=_checked(process_id))

    async def _shim(self, process_id: str) -> int:
        """The pid of the shim, which takes its input. Raises InputClosedError."""
        answer = await self._get(process_id)
        with self._connection.parsing():
            takes_input = answer["has_input"] or answer["is_terminal"]
            shim = int(answer["shim"])
        if not takes_input or not self._process(answer).is_running:
            raise errors.InputClosedError
        return shim

    async def _input(self, method: str, shim: int, **message: Any) -> None:
        """envd has no specific response for a process that accepts no input."""
        sent = {"process": {"pid": shim}, **message}
        async with self._connection.reaching(None):
            try:
                await self._connection.envd.call(f"process.Process/{method}", sent, within_sec=None)
            except CallError as error:
                if error.code and error.trouble in ("not_found", "other"):
                    raise errors.InputClosedError from error
                raise

    def _process(self, answer: Any) -> Process:
        with self._connection.parsing():
            code, ended_at, tag = answer.get("exit_code"), answer.get("ended_at"), answer["tag"]
            signal = answer.get("signal")
            return Process(
                id=str(answer["id"]),
                pid=int(answer["pid"]),
                arguments=tuple(map(str, answer["arguments"])),
                folder=str(answer["folder"]),
                started_at=float(answer["started_at"]),
                tag=None if tag is None else str(tag),
                is_terminal=bool(answer["is_terminal"]),
                is_program=answer["id"] == PROGRAM,
                exit_code=None if code is None else int(code),
                ended_at=None if ended_at is None else float(ended_at),
                signal=None if signal is None else int(signal),
            )

    def _output(self, answer: Any) -> Output:
        with self._connection.parsing():
            data = base64.b64decode(answer["data"])
            return Output(answer["stream"], data, int(answer["offset"]), int(answer["skipped"]))


def _checked(process_id: str) -> str:
    if not PROCESS_ID.fullmatch(process_id):
        raise errors.ProcessNotFoundError
    return process_id
