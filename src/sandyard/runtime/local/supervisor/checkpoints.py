"""Checkpoints of a machine with its own kernel: its memory and processes, at the moment of its
files.

The agent inside first closes all sockets of the host. Then its processes are paused, the image is
written, and the files are packed. If any of it fails, the machine goes on as before.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sandyard.runtime.errors import MemoryNotKeptError
from sandyard.runtime.local.gvisor import memory_images
from sandyard.runtime.local.gvisor.kernel import Kernel
from sandyard.runtime.local.supervisor.commands import CommandTable
from sandyard.runtime.local.supervisor.gvisor_agents import GvisorAgent
from sandyard.runtime.local.supervisor.program import SupervisedProgram

_LOST_CODE = 255
_FLUSH_SEC = 10
_GO_ON_SEC = 60
_AGAIN_SEC = (0.1, 0.4)

Complete = Callable[[Path], None]
"""Adds the memory to an archive of the files of that moment."""


class Checkpoints:
    def __init__(
        self,
        kernel: Kernel,
        agent: GvisorAgent,
        commands: CommandTable,
        program: SupervisedProgram,
        root: str | None,
    ) -> None:
        self._kernel = kernel
        self._agent = agent
        self._commands = commands
        self._program = program
        self._folder = Path("image").absolute()  # in the run's, which is the current one
        self._root = root

    @asynccontextmanager
    async def paused(self, *, goes_on: bool, room_bytes: int) -> AsyncIterator[Complete]:
        """A machine whose processes are paused meanwhile; then it goes on, or waits for its end.
        Raises MemoryNotKeptError if its memory can't be written: then it goes on."""
        if self._kernel.memory_bytes() > room_bytes:
            raise MemoryNotKeptError("The server's disk has no room for its memory.")
        try:
            control = await self._detach()
            try:
                await self._write()
                state = {
                    "control": control,
                    "platform": self._kernel.platform,
                    "program": self._program.saved(),
                    "commands": [
                        {"state": each.state, "streams": each.streams}
                        for each in self._commands.running()
                    ],
                }
                yield partial(
                    memory_images.append, folder=self._folder, root=self._root, state=state
                )
            except BaseException:
                await self._go_on()
                raise
            if goes_on:
                await self._go_on()
        except (OSError, TimeoutError) as error:
            raise MemoryNotKeptError(str(error)) from error
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _detach(self) -> str:
        control = await self._agent.inside.detach()
        async with asyncio.timeout(_FLUSH_SEC):
            await asyncio.gather(*(each.detached() for each in self._commands.running()))
        return control

    async def _write(self) -> None:
        """Tried again, because some processes hold deleted files for a moment."""
        for pause_sec in _AGAIN_SEC:
            await self._kernel.pause()
            with suppress(OSError):
                await self._write_once()
                return
            await self._kernel.resume()
            await asyncio.sleep(pause_sec)
        await self._kernel.pause()
        await self._write_once()

    async def _write_once(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        await self._kernel.checkpoint(self._folder)

    async def _go_on(self) -> None:
        """If that fails, nothing is left to go on with: it ends."""
        try:
            async with asyncio.timeout(_GO_ON_SEC):
                await self._attach_all()
        except BaseException:
            self._kernel.kill()
            raise

    async def _attach_all(self) -> None:
        await self._kernel.resume()
        await self._kernel.wake_agent()
        await self._agent.inside.connected()
        await self._agent.inside.listen_again()
        for running in self._commands.running():
            channels = await attach(self._agent, running.pid, running.streams)
            if channels is None:
                self._commands.record_exit(running.pid, _LOST_CODE)
            else:
                running.attach(channels)


async def restore_processes(
    agent: GvisorAgent,
    state: Mapping[str, Any],
    commands: CommandTable,
    program: SupervisedProgram,
) -> None:
    """Those of a machine that goes on from an image. Raises AgentLostError."""
    for each in state["commands"]:
        channels = await attach(agent, each["state"]["pid"], each["streams"])
        if channels is not None:
            commands.add(agent, each["state"], channels)
    await program.resume(agent, state["program"])


async def attach(
    agent: GvisorAgent, pid: int, streams: tuple[str, ...]
) -> Mapping[str, int] | None:
    """The streams of its process by their names; None if it has ended. Raises AgentLostError."""
    packet = await agent.inside.with_sockets("attach", {"pid": pid}, tuple(streams))
    if "result" not in packet.message:
        return None
    return dict(zip(streams, packet.descriptors, strict=True))
