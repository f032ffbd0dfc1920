"""The machine's program, with which the machine ends, and its log."""

import asyncio
import signal
from pathlib import Path
from typing import Any

from sandyard.runtime.local.ipc.packets import Packet
from sandyard.runtime.local.records.logs import LogWriter
from sandyard.runtime.local.supervisor.agent_client import AgentClient
from sandyard.runtime.local.supervisor.commands import CommandTable, RunningCommand


class ProgramLog:
    """`exited` has its exit code once it has ended."""

    def __init__(self, commands: CommandTable, folder: Path, *, limit_bytes: int) -> None:
        self._commands = commands
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._writer: LogWriter | None = None
        self._program: RunningCommand | None = None
        self._waiting: asyncio.Task[None] | None = None
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def start_program(self, agent: AgentClient, command: dict[str, Any]) -> Packet | str:
        writer = LogWriter(self._folder, limit_bytes=self._limit_bytes)
        started = await self._commands.start(agent, command, sink=writer.write)
        if isinstance(started, Packet):
            writer.close()
            return started
        self._writer = writer
        self._program = self._commands.get(started)
        self._waiting = asyncio.ensure_future(self._wait())
        return started

    def note(self, line: str) -> None:
        """Write a line of ours into its log; nothing before the program started."""
        if self._writer is not None and not self.exited.done():
            self._writer.write(f"{line}\n".encode())

    async def _wait(self) -> None:
        if self._program is not None:
            await self._program.ended.wait()
            self.exited.set_result(self._program.state["exit_code"])

    async def end_program(self, *, grace_sec: float) -> None:
        """Send SIGTERM, and wait for the grace period."""
        if grace_sec and self._program is not None and not self._program.ended.is_set():
            self._program.signal(signal.SIGTERM)
            await asyncio.wait([self.exited], timeout=grace_sec)

    async def close(self) -> None:
        """Drain its output into the log."""
        if self._program is not None:
            await self._program.drain()
        if self._writer is not None:
            self._writer.close()
