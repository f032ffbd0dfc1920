"""One machine at E2B from inside, and the connections to all of them."""

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandyard.runtime.e2b.control import E2bControl
from sandyard.runtime.e2b.errors import translation
from sandyard.runtime.errors import NotRunningError
from sandyard.runtime.model import Log, RunId
from sandyard.runtime.remote import sdk as kit
from sandyard.runtime.remote.connection import HOME, Channel, reading_answer
from sandyard.runtime.remote.guest_code import STATE
from sandyard.runtime.remote.processes import PROGRAM
from sandyard.runtime.remote.session import E2bSession
from sandyard.runtime.sessions.model import WORKSPACE

if TYPE_CHECKING:
    from e2b import AsyncSandbox

_END_SEC = 10


@dataclass(frozen=True, slots=True)
class Usage:
    workspace_bytes: int
    processes: int


class E2bMachine:
    def __init__(self, channel: Channel, session: E2bSession, *, timeout_sec: float) -> None:
        self._channel = channel
        self._timeout_sec = timeout_sec
        self.session = session

    async def prepare(self) -> None:
        """Make the workspace, at its standard path."""
        await self._channel.ask("prepare")
        async with self._channel.reaching():
            link = f"ln -sfnT {HOME}{WORKSPACE} {WORKSPACE}"
            await self._channel.sandbox.commands.run(link, user="root", cwd="/")

    async def exit_code(self) -> int | None:
        """The program's exit code, once it has ended by itself."""
        from e2b import FileNotFoundException

        backoff = self._channel.backoff
        async with kit.translated(self._timeout_sec, translation, backoff=backoff):
            try:
                answer = await self._channel.sandbox.files.read(f"{HOME}/{STATE}/exit")
            except FileNotFoundException:
                return None
        with reading_answer():
            return int(answer)

    async def end_processes(self) -> None:
        """End all processes, including those that left their parents."""
        await self._channel.ask("end", more_sec=_END_SEC)

    async def read_log(self, begin: int | None = None) -> Log:
        answer = await self._channel.ask("read_log", process_id=PROGRAM, begin=begin)
        with reading_answer():
            return Log(int(answer["begins_at"]), base64.b64decode(answer["data"]))

    async def usage(self) -> Usage:
        answer = await self._channel.ask("usage")
        with reading_answer():
            return Usage(int(answer["workspace_bytes"]), int(answer["processes"]))


class Connections:
    """Connects to each machine once, and again when the connection was lost."""

    def __init__(self, control: E2bControl) -> None:
        self._control = control
        self._machines: dict[str, E2bMachine] = {}

    async def to_running(self, sandbox_id: str, run_id: RunId) -> E2bMachine:
        """Does not resume a paused machine. Raises NotRunningError."""
        if sandbox_id not in self._machines:
            if await self._control.state(sandbox_id) != "running":
                raise NotRunningError
            return self.add(await self._control.connect(sandbox_id), run_id)
        return self._machines[sandbox_id]

    async def resumed(self, sandbox_id: str, run_id: RunId, *, lifetime_sec: float) -> E2bMachine:
        """A connection to the machine, which lives at least this long."""
        sandbox = await self._control.connect(sandbox_id, lifetime_sec=lifetime_sec)
        return self.add(sandbox, run_id)

    def add(self, sandbox: "AsyncSandbox", run_id: RunId) -> E2bMachine:
        sandbox_id = sandbox.sandbox_id

        async def is_running() -> bool:
            return await self._control.state(sandbox_id) == "running"

        timeout_sec = self._control.timeouts.command_sec
        channel = Channel(
            sandbox,
            run_id,
            timeout_sec=timeout_sec,
            backoff=self._control.backoffs.of(sandbox_id),
            is_running=is_running,
        )
        session = E2bSession(channel, sandbox_url=self._control.sandbox_url)
        machine = E2bMachine(channel, session, timeout_sec=timeout_sec)
        self._machines[sandbox_id] = machine
        return machine

    def drop(self, sandbox_id: str) -> None:
        self._machines.pop(sandbox_id, None)
