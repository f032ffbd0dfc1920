"""Calls the guest in a machine elsewhere: as a process of envd, which responds line by line."""

import asyncio
import base64
import json
import shlex
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Protocol

from sandyard.kit.lines import LineReader
from sandyard.kit.sizes import MESSAGE_BYTES
from sandyard.runtime import guest
from sandyard.runtime.guest.machine import MARK
from sandyard.runtime.remote.envd import Envd
from sandyard.runtime.remote.errors import CallError
from sandyard.runtime.remote.http import parsing

STATE = ".sandyard"
"""In the home folder of the machine's user, beside the workspace."""
HOME = "/home/user"
_NAME = "guest"
_EXIT_SEC = 2
"""For a guest that has responded to exit."""
Message = Mapping[str, Any]


class Guest(Protocol):
    """Every method raises CallError."""

    async def install(self) -> None:
        """Return when it can be called."""

    def messages(
        self, operation: str, arguments: Message, *, stays: bool = False, stdin: bool = False
    ) -> AsyncGenerator[Message]:
        """Its messages. It is ended when nobody reads any more, unless `stays`."""


@cache
def guest_files() -> dict[str, bytes]:
    """By their paths in the machine, relative to the home folder."""
    sources = {
        each.name: each.read_bytes() for each in files(guest).iterdir() if each.name.endswith(".py")
    }
    return {f"{_folder(sources)}/{_NAME}/{name}": sources[name] for name in sorted(sources)}


def guest_folder() -> str:
    """Where `python3 -m guest` finds it; servers of other versions use other folders."""
    return next(iter(guest_files())).rpartition(f"/{_NAME}/")[0]


def _folder(sources: dict[str, bytes]) -> str:
    content = b"".join(sources[name] for name in sorted(sources))
    return f"{STATE}/{sha256(content).hexdigest()[:16]}"


@dataclass(slots=True)
class GuestProcess:
    """Run by envd with the machine's own `python3`, to which it is sent."""

    envd: Envd
    run: str
    """Identifies the machine's run; marks its processes."""
    timeout_sec: float
    _is_installed: bool = field(default=False, init=False)

    async def install(self) -> None:
        if not self._is_installed:
            await self.envd.upload(guest_files(), within_sec=None)
            self._is_installed = True

    def command(self, operation: str, arguments: str) -> dict[str, Any]:
        call = f"exec python3 -m guest {operation} {shlex.quote(arguments)}"
        return {
            "cmd": "/bin/bash",
            "args": ["-l", "-c", call],
            "cwd": f"{HOME}/{guest_folder()}",
        }

    async def messages(
        self, operation: str, arguments: Message, *, stays: bool = False, stdin: bool = False
    ) -> AsyncGenerator[Message]:
        process = {**self.command(operation, json.dumps(arguments)), "envs": {MARK: self.run}}
        events = self.envd.stream("process.Process/Start", {"process": process, "stdin": stdin})
        pid, lines, is_over = None, LineReader(MESSAGE_BYTES), stays
        try:
            async for event in events:
                with parsing():
                    pid = event["event"].get("start", {}).get("pid", pid)
                    output = event["event"].get("data", {}).get("stdout", "")
                    found = lines.feed(base64.b64decode(output))
                    messages = [dict(json.loads(line)) for line in found]
                for message in messages:
                    is_over = is_over or "item" not in message
                    yield message
        finally:
            await self._finish(events, pid, is_over=is_over, stays=stays)

    async def _finish(
        self, events: AsyncGenerator[Any], pid: int | None, *, is_over: bool, stays: bool
    ) -> None:
        if is_over and not stays:
            with suppress(CallError, TimeoutError):
                async with asyncio.timeout(_EXIT_SEC):
                    async for _ in events:
                        pass
        await events.aclose()
        if pid is not None and not is_over:
            killing = {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"}
            with suppress(CallError):
                await self.envd.call(
                    "process.Process/SendSignal", killing, within_sec=self.timeout_sec
                )
