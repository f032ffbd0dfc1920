"""The machine's program as its supervisor runs it: its state is recorded in the run's folder, its
output is the log, and it is started again by its policy, also while no server runs."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from sandyard.kit.clock import Clock
from sandyard.runtime.guest.program import ProgramState, ended, starting
from sandyard.runtime.local.ipc.packets import Packet
from sandyard.runtime.local.records.logs import LogWriter
from sandyard.runtime.local.records.run_folder import LocalRunFolder
from sandyard.runtime.local.supervisor.agent_client import AgentLostError
from sandyard.runtime.local.supervisor.command_requests import refused
from sandyard.runtime.local.supervisor.commands import CommandTable, ProcessStarter, RunningCommand

STOP_GRACE_SEC = 2.0
_POLL_SEC = 0.01
_LONGER, _LONGEST_SEC = 1.25, 0.2
"""Poll a program that takes long to listen less and less often."""


class SupervisedProgram:
    """`exited` has the exit code of a program with which its machine ends."""

    def __init__(
        self, commands: CommandTable, folder: LocalRunFolder, clock: Clock, *, log_bytes: int
    ) -> None:
        self._commands = commands
        self._folder = folder
        self._clock = clock
        self._log_bytes = log_bytes
        self._writer: LogWriter | None = None
        self._process: RunningCommand | None = None
        self._command: dict[str, Any] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self.listening: Callable[[], Awaitable[list[int]]] = _nothing_listens
        """The ports that listen inside, once the machine is there."""
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def start(self, agent: ProcessStarter, command: dict[str, Any]) -> Packet | str:
        """The id of its process, or the agent's refusal; one that runs is stopped first."""
        async with self._changing:
            await self._stop(STOP_GRACE_SEC)
            state = starting(self._clock.now(), command["program"])
            started = await self._launch(agent, command, state)
            if not isinstance(started, Packet):
                self._watching = asyncio.ensure_future(self._watch(agent, command, state))
        return started

    async def stop(self) -> None:
        """End it with its process group; it is not started again."""
        async with self._changing:
            await self._stop(STOP_GRACE_SEC)
            last = self._folder.program()
            if last is not None and last.status != "stopped":
                self._folder.write_program(ProgramState("stopped", self._clock.now(), last.policy))

    def saved(self) -> dict[str, Any] | None:
        """What `resume` needs; None if it was never started."""
        state = self._folder.program()
        if state is None or self._process is None or self._command is None:
            return None
        process_id = self._process.state["id"]
        return {"process": process_id, "command": self._command, "state": asdict(state)}

    async def resume(self, agent: ProcessStarter, saved: dict[str, Any] | None) -> None:
        """Watch the process that goes on from a checkpoint, or start it again if it was due."""
        if saved is None:
            return
        command, state = saved["command"], ProgramState(**saved["state"])
        self._folder.write_program(state)
        process = self._commands.get(saved["process"])
        if process is not None:
            self._command, self._process = command, process
            process.sink = self._log().write
            self._watching = asyncio.ensure_future(self._watch(agent, command, state))
        elif not state.is_over or state.restarts_at is not None:
            await self.start(agent, command)

    def announce(self, line: str) -> None:
        """Write a line of ours into its log, even before it was first started."""
        self._log().write(f"{line}\n".encode())

    def note(self, line: str) -> None:
        """Write a line of ours into its log; nothing before it was first started."""
        if self._writer is not None and not self.exited.done():
            self._writer.write(f"{line}\n".encode())

    async def end(self, *, grace_sec: float) -> None:
        """At the end of the machine, which kills what is left of it after this grace period."""
        await self._stop(grace_sec)

    async def close(self) -> None:
        """Drain its output into the log."""
        if self._process is not None:
            await self._process.drain()
        if self._writer is not None:
            self._writer.close()

    async def _launch(
        self, agent: ProcessStarter, command: dict[str, Any], state: ProgramState
    ) -> Packet | str:
        self._command = command
        try:
            started = await self._commands.start(agent, command, sink=self._log().write)
        except AgentLostError as error:
            return refused("AGENT_LOST", str(error))
        if not isinstance(started, Packet):
            self._process = self._commands.get(started)
            self._folder.write_program(state)
        return started

    def _log(self) -> LogWriter:
        self._writer = self._writer or LogWriter(self._folder.logs, limit_bytes=self._log_bytes)
        return self._writer

    async def _watch(
        self, agent: ProcessStarter, command: dict[str, Any], state: ProgramState
    ) -> None:
        while self._process is not None:
            started_at = state.since_at
            state = await self._until_listening(self._process, command, state)
            await self._process.ended.wait()
            code = self._process.state["exit_code"]
            state = ended(state, code, started_at=started_at, at=self._clock.now())
            self._folder.write_program(state)
            if state.policy == "ends_machine":
                self.exited.set_result(code)
            if state.restarts_at is None:
                return
            pause_sec = state.restarts_at - state.since_at
            self.note(f"sandyard: {state.reason} It is started again in {pause_sec:g} s.")
            await asyncio.sleep(pause_sec)
            again = starting(self._clock.now(), state.policy, after=state)
            if isinstance(await self._launch(agent, command, again), Packet):
                reason = f"{state.reason} It could not be started again."
                self._folder.write_program(replace(state, reason=reason, restarts_at=None))
                return
            state = again

    async def _until_listening(
        self, process: RunningCommand, command: dict[str, Any], state: ProgramState
    ) -> ProgramState:
        """Its state when its port listens, if it has one, or it has ended."""
        if state.status == "running":  # since before a checkpoint
            return state
        port, pause_sec = command["environment"].get("PORT"), _POLL_SEC
        while port is not None and int(port) not in await self.listening():
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_sec):
                    await process.ended.wait()
            if process.ended.is_set():
                return state
            pause_sec = min(_LONGER * pause_sec, _LONGEST_SEC)
        state = replace(state, status="running", since_at=self._clock.now())
        self._folder.write_program(state)
        return state

    async def _stop(self, grace_sec: float) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        process = self._process
        if process is None or process.ended.is_set() or not grace_sec:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            process.signal(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_sec):
                    await process.ended.wait()
                    return


async def _nothing_listens() -> list[int]:
    return []
