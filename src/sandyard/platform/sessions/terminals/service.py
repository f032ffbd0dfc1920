"""A terminal in a running sandbox, over a connection that may be lost and reopened."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol

from sandyard.platform.sessions.commands.service import Commands
from sandyard.platform.sessions.service import Sessions
from sandyard.runtime.errors import InputClosedError, NotATerminalError
from sandyard.runtime.sessions.model import Command, Process, TerminalSize
from sandyard.runtime.sessions.ports import Processes

_REUSED = "shell"
"""The tag of shells that are attached to again."""
_UNATTENDED_SEC = 600
LOGIN_SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash -l; exec sh -l")


@dataclass(frozen=True, slots=True)
class Keys:
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    size: TerminalSize


class TerminalClient(Protocol):
    """The client of a terminal."""

    def typed(self) -> AsyncIterator[Keys | Resize]:
        """Until the connection ends."""

    async def tell(
        self, kind: Literal["attached", "skipped", "exit"], **values: object
    ) -> None: ...

    async def show(self, data: bytes) -> None: ...


class Terminals:
    def __init__(self, sessions: Sessions, commands: Commands) -> None:
        self._sessions = sessions
        self._commands = commands

    async def start(self, sandbox_id: str, command: Command, *, account_id: str) -> "Terminal":
        process = await self._commands.start(sandbox_id, command, account_id=account_id)
        return await self.attach(sandbox_id, process.id, account_id=account_id)

    async def reuse(self, sandbox_id: str, command: Command, *, account_id: str) -> "Terminal":
        """Attach to the last shell that was opened in this way and still runs, or open one. It is
        hung up when nobody has been attached to it for ten minutes."""
        session = await self._sessions.open(sandbox_id, account_id=account_id)
        shells = [each for each in await session.processes.list() if each.tag == _REUSED]
        running = [each for each in shells if each.is_running]
        if not running:
            shell = replace(command, tag=_REUSED, unattended_sec=_UNATTENDED_SEC)
            return await self.start(sandbox_id, shell, account_id=account_id)
        if command.terminal is not None:
            await session.processes.resize(running[-1].id, command.terminal)
        return await self.attach(sandbox_id, running[-1].id, account_id=account_id)

    async def attach(
        self, sandbox_id: str, command_id: str, *, account_id: str, offset: int = 0
    ) -> "Terminal":
        """Attach to a running or ended terminal. NotATerminalError."""
        process = await self._commands.get(sandbox_id, command_id, account_id=account_id)
        if not process.is_terminal:
            raise NotATerminalError
        session = await self._sessions.open(sandbox_id, account_id=account_id)
        using = partial(self._sessions.keep_using, sandbox_id, account_id=account_id)
        return Terminal(session.processes, process, offset, using)


@dataclass(slots=True, eq=False)
class Terminal:
    """One process, shown from an offset on. It outlives the connection."""

    processes: Processes
    process: Process
    offset: int
    keep_using: Callable[[], Coroutine[Any, Any, None]]

    async def serve(self, client: TerminalClient, until_revoked: Coroutine[Any, Any, None]) -> None:
        """Return when the process has ended and all output was shown, or the client is gone; raises
        the errors of `until_revoked`."""
        work = (self._show(client), self._type(client), self.keep_using(), until_revoked)
        tasks = [asyncio.create_task(each) for each in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _show(self, client: TerminalClient) -> None:
        await client.tell("attached", command_id=self.process.id, offset=self.offset)
        process_id = self.process.id
        async for output in self.processes.output(process_id, offset=self.offset, follow=True):
            if output.skipped:
                await client.tell("skipped", bytes=output.skipped)
            await client.show(output.data)
        ended = await self.processes.wait(process_id)
        await client.tell("exit", exit_code=ended.exit_code)

    async def _type(self, client: TerminalClient) -> None:
        async for typed in client.typed():
            try:
                await self._take(typed)
            except InputClosedError:  # it has ended; its output is still being shown
                continue

    async def _take(self, typed: Keys | Resize) -> None:
        if isinstance(typed, Keys):
            await self.processes.write_input(self.process.id, typed.data)
        else:
            await self.processes.resize(self.process.id, typed.size)
