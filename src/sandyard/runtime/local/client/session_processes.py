"""`session_ports.Processes` of a machine here."""

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

from sandyard.runtime import errors
from sandyard.runtime.local.client.supervisor_client import MachineClient
from sandyard.runtime.local.jail.isolation import UID_INSIDE
from sandyard.runtime.sessions.model import (
    Command,
    Output,
    Process,
    TerminalSize,
    command_message,
)

_INPUT_BYTES = 64 * 1024
_USER, _ROOT = "user", "root"
_IDS = re.compile(r"([0-9]{1,5}):([0-9]{1,5})")
_HOME_OF_ROOT = "/root"


class LocalProcesses:
    def __init__(self, client: MachineClient, root: MachineClient | None = None) -> None:
        """`root` is for commands run as root, if there is one."""
        self._client = client
        self._root = root

    async def start(self, command: Command) -> Process:
        packet = await self._by(command.user).ask("start", self._start_arguments(command))
        return _process(packet.message["result"])

    async def run(self, command: Command) -> AsyncGenerator[Process | Output]:
        async with self._by(command.user).open() as request:
            packet = await request("run", self._start_arguments(command))
            result = packet.message["result"]
            process_id = result["process"]["id"]
            yield _process(result["process"])
            while True:
                for output in _outputs(result, packet.data):
                    yield output
                if result["is_over"]:
                    break
                arguments = {"id": process_id, "offset": result["offset"], "wait": True}
                packet = await request("output", arguments | {"is_paced": command.is_paced})
                result = packet.message["result"]
            yield _process(result["process"])

    async def list(self) -> Sequence[Process]:
        packet = await self._client.ask("processes", {})
        return [_process(each) for each in packet.message["result"]]

    async def get(self, process_id: str) -> Process:
        return _process((await self._client.ask("get", {"id": process_id})).message["result"])

    async def wait(self, process_id: str, *, timeout_sec: float | None = None) -> Process:
        arguments = {"id": process_id, "timeout_sec": timeout_sec}
        return _process((await self._client.ask("wait", arguments)).message["result"])

    async def output(
        self, process_id: str, *, offset: int = 0, follow: bool = False
    ) -> AsyncGenerator[Output]:
        is_over = False
        while not is_over:
            arguments = {"id": process_id, "offset": offset, "wait": follow}
            packet = await self._client.ask("output", arguments)
            result = packet.message["result"]
            is_over = result["is_over"] or (not follow and not packet.data)
            for output in _outputs(result, packet.data):
                yield output
            offset = result["offset"]

    async def write_input(self, process_id: str, data: bytes) -> None:
        for begin in range(0, len(data), _INPUT_BYTES):
            piece = data[begin : begin + _INPUT_BYTES]
            await self._client.ask("input", {"id": process_id}, data=piece)

    async def close_input(self, process_id: str) -> None:
        await self._client.ask("close_input", {"id": process_id})

    async def resize(self, process_id: str, size: TerminalSize) -> None:
        arguments = {"id": process_id, "columns": size.columns, "rows": size.rows}
        await self._client.ask("resize", arguments)

    async def signal(self, process_id: str, number: int) -> None:
        await self._client.ask("signal", {"id": process_id, "signal": number})

    def _start_arguments(self, command: Command) -> dict[str, Any]:
        home = {"HOME": _HOME_OF_ROOT} if command.user == _ROOT else {}
        message = command_message(replace(command, environment={**home, **command.environment}))
        return {**message, "ids": None if self._root is None else _other_ids(command.user)}

    def _by(self, user: str | None) -> MachineClient:
        if (user == _ROOT or _other_ids(user)) and self._root is not None:
            return self._root
        if user in (None, _USER) or _IDS.fullmatch(user or ""):
            return self._client
        known = "`user` or `root`" if self._root is not None else "`user`; it has no root"
        raise errors.CommandRefusedError(f"In this sandbox commands run as {known}.")


def _other_ids(user: str | None) -> list[int] | None:
    """The ids in `uid:gid`, unless they are the ordinary user's."""
    found = _IDS.fullmatch(user or "")
    return [int(found[1]), int(found[2])] if found and int(found[1]) != UID_INSIDE else None


def _outputs(result: dict[str, Any], data: bytes) -> list[Output]:
    outputs: list[Output] = []
    at, skipped = result["offset"] - len(data), result["skipped"]
    for stream, length in result["chunks"]:
        at += length
        outputs.append(Output(stream, data[:length], at, skipped))
        data, skipped = data[length:], 0
    return outputs


def _process(result: dict[str, Any]) -> Process:
    return Process(**{**result, "arguments": tuple(result["arguments"])})
