"""The requests of sessions about processes, answered from the table of commands."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, nullcontext, suppress
from typing import Any

from sandyard.runtime.local.ipc.packets import MOST_BYTES, Packet
from sandyard.runtime.local.supervisor.commands import (
    CommandTable,
    ProcessStarter,
    RunningCommand,
    valid_signal,
)

_SHORT_COMMAND_SEC = 0.02
_INPUT_SEC = 30
"""For a process to accept some of its input: until then a client's disconnect goes unnoticed."""

Start = Callable[[Any, dict[str, Any]], Awaitable[Packet | str]]
"""Starts a process by an agent; returns its id, or the agent's refusal."""
Handler = Callable[[RunningCommand, dict[str, Any], bytes], Awaitable[Packet]]


class CommandRequests:
    def __init__(self, commands: CommandTable, start_program: Start) -> None:
        self._commands = commands
        self._start_program = start_program

    async def answer(
        self,
        agent: ProcessStarter,
        operation: str,
        arguments: dict[str, Any],
        data: bytes,
        connection: ExitStack,
    ) -> Packet:
        """`connection` is closed with the caller's. Raises KeyError for an unknown operation, or an
        argument that is missing."""
        if operation == "processes":
            return result_of(self._commands.list())
        if operation in ("start", "run"):
            return await self._start(agent, arguments, connection, is_followed=operation == "run")
        handle = _HANDLERS[operation]
        command = self._commands.get(arguments["id"])
        if command is None:
            return refused("PROCESS_NOT_FOUND")
        return await handle(command, arguments, data)

    async def _start(
        self,
        agent: ProcessStarter,
        arguments: dict[str, Any],
        connection: ExitStack,
        *,
        is_followed: bool,
    ) -> Packet:
        """Its state; or if it is followed its output: all of it and its exit, if it ends within a
        moment."""
        start = self._start_program if arguments["program"] else self._commands.start
        started = await start(agent, arguments)
        if isinstance(started, Packet):
            return started
        command = self._commands.get(started)
        if command is None:
            raise KeyError("id")
        if not is_followed:
            return result_of(command.state)
        if arguments.get("is_paced"):
            connection.enter_context(command.paced())
        await _until_ended(command, _SHORT_COMMAND_SEC)
        return _output_of(command, 0)


async def _get(command: RunningCommand, _arguments: dict[str, Any], _data: bytes) -> Packet:
    return result_of(command.state)


async def _wait(command: RunningCommand, arguments: dict[str, Any], _data: bytes) -> Packet:
    await _until_ended(command, arguments["timeout_sec"])
    return result_of(command.state)


async def _output(command: RunningCommand, arguments: dict[str, Any], _data: bytes) -> Packet:
    """Output from an offset on; with `wait`, waits until there is some."""
    offset = int(arguments["offset"])
    if arguments.get("is_paced"):
        command.read_to(offset)
    with command.followed() if arguments["wait"] else nullcontext():
        while arguments["wait"] and command.ring.end <= offset and not command.ended.is_set():
            await command.until_changed()
    return _output_of(command, offset)


async def _input(command: RunningCommand, _arguments: dict[str, Any], data: bytes) -> Packet:
    try:
        is_taken = await command.write(data, timeout_sec=_INPUT_SEC)
    except TimeoutError:
        return refused("INPUT_NOT_TAKEN")
    return result_of(None) if is_taken else refused("INPUT_CLOSED")


async def _close_input(command: RunningCommand, _arguments: dict[str, Any], _data: bytes) -> Packet:
    command.close_input()
    return result_of(None)


async def _resize(command: RunningCommand, arguments: dict[str, Any], _data: bytes) -> Packet:
    if not command.is_terminal:
        return refused("NOT_A_TERMINAL")
    command.resize(arguments["columns"], arguments["rows"])
    return result_of(None)


async def _signal(command: RunningCommand, arguments: dict[str, Any], _data: bytes) -> Packet:
    if not valid_signal(number := arguments["signal"]):
        return refused("INVALID_SIGNAL")
    command.signal(number)
    return result_of(None)


_HANDLERS: dict[str, Handler] = {
    "get": _get,
    "wait": _wait,
    "output": _output,
    "input": _input,
    "close_input": _close_input,
    "resize": _resize,
    "signal": _signal,
}


async def _until_ended(command: RunningCommand, timeout_sec: float | None) -> None:
    """Return when it has ended, or this time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_sec):
            await command.ended.wait()


def _output_of(command: RunningCommand, offset: int) -> Packet:
    is_over = command.ended.is_set()
    output_slice = command.ring.read(offset, most=MOST_BYTES)
    result = {
        "process": command.state,
        "chunks": output_slice.chunks,
        "offset": output_slice.offset,
        "skipped": output_slice.skipped,
        "is_over": is_over and output_slice.offset == command.ring.end,
    }
    return Packet({"result": result}, output_slice.data)


def result_of(result: Any) -> Packet:
    return Packet({"result": result})


def refused(code: str, message: str = "") -> Packet:
    return Packet({"refused": code, "message": message})
