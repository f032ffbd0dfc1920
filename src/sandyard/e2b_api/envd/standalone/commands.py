"""The guest's operations on processes, for those that the agent itself has started: they have no
shim, because they end with the agent."""

import base64
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from sandyard.runtime.errors import ProcessNotFoundError
from sandyard.runtime.sessions.model import Command, Output, Process, TerminalSize
from sandyard.runtime.sessions.ports import Processes

_OWN = ("start_command", "run_command", "list_commands")


class PodCommands:
    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    async def has(self, operation: str, arguments: Mapping[str, Any]) -> bool:
        """Whether this is for a process that was started here, and not by a shim."""
        if operation in _OWN:
            return True
        try:
            await self._processes.get(arguments.get("process_id", ""))
        except ProcessNotFoundError:
            return False
        return True

    async def messages(
        self, operation: str, arguments: Mapping[str, Any]
    ) -> AsyncGenerator[dict[str, Any]]:
        """Raises the refusals."""
        if operation in ("run_command", "follow"):
            async with aclosing(self._items(operation, arguments)) as items:
                async for each in items:
                    yield {"item": _output(each) if isinstance(each, Output) else _record(each)}
            yield {"result": None}
        else:
            yield {"result": await self._result(operation, arguments)}

    def _items(
        self, operation: str, arguments: Mapping[str, Any]
    ) -> AsyncGenerator[Process | Output]:
        if operation == "run_command":
            return self._processes.run(_command(arguments["command"]))
        offset, follow = arguments["offset"], arguments["wait"]
        return self._processes.output(arguments["process_id"], offset=offset, follow=follow)

    async def _result(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        processes, process_id = self._processes, arguments.get("process_id", "")
        match operation:
            case "start_command":
                return _record(await processes.start(_command(arguments["command"])))
            case "list_commands":
                return [_record(each) for each in await processes.list()]
            case "wait":
                timeout_sec = arguments["timeout_sec"]
                return _record(await processes.wait(process_id, timeout_sec=timeout_sec))
            case "signal":
                return await processes.signal(process_id, arguments["number"])
            case "resize":
                size = TerminalSize(arguments["columns"], arguments["rows"])
                return await processes.resize(process_id, size)
            case _:
                return _record(await processes.get(process_id))


def _command(message: Mapping[str, Any]) -> Command:
    size = message["terminal"]
    terminal = {"TERM": "xterm"} if size else {}
    return Command(
        tuple(message["arguments"]),
        {**terminal, **os.environ, **message["environment"]},
        folder=message["folder"],
        terminal=TerminalSize(*size) if size else None,
        has_input=message["has_input"],
        tag=message["tag"],
        unattended_sec=message["unattended_sec"],
        is_paced=message["is_paced"],
    )


def _record(process: Process) -> dict[str, Any]:
    """Its input is taken by its own pid."""
    return {**asdict(process), "has_input": True, "shim": process.pid}


def _output(output: Output) -> dict[str, Any]:
    return {**asdict(output), "data": base64.b64encode(output.data).decode()}
