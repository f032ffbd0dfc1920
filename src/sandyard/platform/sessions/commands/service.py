"""Commands in a running sandbox."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

from sandyard.platform.sandboxes.ports import SandboxVariables
from sandyard.platform.sessions.commands.output import Tail, Written
from sandyard.platform.sessions.service import Sessions
from sandyard.runtime.errors import ProcessNotFoundError
from sandyard.runtime.sessions.model import PROCESS_ID, Command, Output, Process
from sandyard.runtime.sessions.ports import Processes

SHOWN_BYTES = 1024 * 1024
"""The most bytes of each stream in the answer of a command that was waited for, and of output in
one answer."""
_KILL_WAIT_SEC = 10


@dataclass(frozen=True, slots=True)
class Wait:
    """How long to wait for a command, and whether to kill it then."""

    timeout_sec: float
    kills: bool


@dataclass(frozen=True, slots=True)
class Result:
    """A command that was waited for, and its output until then."""

    process: Process
    written: Written
    timed_out: bool


class Commands:
    """Every use case is about a running sandbox of the account; it raises the errors of opening a
    session and of its processes."""

    def __init__(self, sessions: Sessions, variables: SandboxVariables) -> None:
        self._sessions = sessions
        self._variables = variables

    async def prepare(
        self, sandbox_id: str, command: Command, *, account_id: str
    ) -> tuple[Processes, Command]:
        """The sandbox's processes, and the command with the variables of the project and of the
        sandbox; its own override them."""
        sandbox = await self._sessions.get_sandbox(sandbox_id, account_id=account_id)
        session = await self._sessions.into(sandbox)
        variables = await self._variables.of_sandbox(sandbox)
        complete = replace(command, environment={**variables, **command.environment})
        return session.processes, complete

    async def start(self, sandbox_id: str, command: Command, *, account_id: str) -> Process:
        """Start it in the background."""
        processes, complete = await self.prepare(sandbox_id, command, account_id=account_id)
        return await processes.start(complete)

    async def run(
        self, sandbox_id: str, command: Command, wait: Wait, *, account_id: str
    ) -> Result:
        processes, complete = await self.prepare(sandbox_id, command, account_id=account_id)
        written = Written(Tail(SHOWN_BYTES), Tail(SHOWN_BYTES))
        offset = 0
        async with aclosing(processes.run(complete)) as messages:
            process = _started(await anext(messages))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait.timeout_sec):
                    async for each in messages:
                        if isinstance(each, Process):
                            return Result(each, written, timed_out=False)
                        written.add(each)
                        offset = each.offset
        if wait.kills:
            process = await _kill(processes, process.id)
        async for output in processes.output(process.id, offset=offset):
            written.add(output)
        return Result(await processes.get(process.id), written, timed_out=True)

    async def list(self, sandbox_id: str, *, account_id: str) -> Sequence[Process]:
        """Oldest first."""
        return await (await self._processes(sandbox_id, account_id)).list()

    async def get(self, sandbox_id: str, command_id: str, *, account_id: str) -> Process:
        processes = await self._processes(sandbox_id, account_id)
        return await processes.get(_known(command_id))

    async def output(
        self, sandbox_id: str, command_id: str, *, account_id: str, offset: int
    ) -> tuple[Process, Sequence[Output]]:
        """Its output from there on, as much as one answer holds, and its state before that."""
        processes = await self._processes(sandbox_id, account_id)
        process = await processes.get(_known(command_id))
        outputs: list[Output] = []
        size = 0
        async for output in processes.output(process.id, offset=offset):
            outputs.append(output)
            size += len(output.data)
            if size >= SHOWN_BYTES:
                break
        return process, outputs

    async def follow(
        self, sandbox_id: str, command_id: str, *, account_id: str, offset: int
    ) -> AsyncIterator[Output]:
        """Its past and future output from there on, until it has ended."""
        processes = await self._processes(sandbox_id, account_id)
        process = await processes.get(_known(command_id))
        return processes.output(process.id, offset=offset, follow=True)

    async def write_input(
        self, sandbox_id: str, command_id: str, data: bytes, *, account_id: str, closes: bool
    ) -> None:
        processes = await self._processes(sandbox_id, account_id)
        if data:
            await processes.write_input(_known(command_id), data)
        if closes:
            await processes.close_input(_known(command_id))

    async def signal(
        self, sandbox_id: str, command_id: str, number: int, *, account_id: str
    ) -> Process:
        processes = await self._processes(sandbox_id, account_id)
        await processes.signal(_known(command_id), number)
        return await processes.get(command_id)

    async def kill(self, sandbox_id: str, command_id: str, *, account_id: str) -> Process:
        """Kill the command and return it; still running, if that takes too long."""
        processes = await self._processes(sandbox_id, account_id)
        return await _kill(processes, _known(command_id))

    async def _processes(self, sandbox_id: str, account_id: str) -> Processes:
        return (await self._sessions.open(sandbox_id, account_id=account_id)).processes


def _known(command_id: str) -> str:
    if not PROCESS_ID.fullmatch(command_id):
        raise ProcessNotFoundError
    return command_id


def _started(first: Process | Output) -> Process:
    if isinstance(first, Process):
        return first
    raise TypeError("a process comes before its output")


async def _kill(processes: Processes, process_id: str) -> Process:
    await processes.signal(process_id, signal.SIGKILL)
    return await processes.wait(process_id, timeout_sec=_KILL_WAIT_SEC)
