"""The supervisor's side of the agent: asks it, and starts another when it has died."""

import asyncio
import itertools
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from sandyard.runtime.local.agent.agent import AgentSetup, fork_agent
from sandyard.runtime.local.agent.network import OpenedNetwork
from sandyard.runtime.local.ipc.packets import Packet, packet_pair, receive, send
from sandyard.runtime.local.jail.spawn import pin
from sandyard.runtime.local.supervisor.process_groups import Group, ProcessGroup

_READY_SEC = 10


class AgentLostError(OSError):
    """The agent died before it answered; another one is there now, or will be."""


class Agent(Protocol):
    """Acts inside one machine. Its answers are passed on unchanged; nobody trusts them."""

    async def ask(
        self, operation: str, arguments: dict[str, Any], descriptors: tuple[int, ...] = ()
    ) -> Packet:
        """Its answer, a result or a refusal. Raises AgentLostError."""

    def group(self, pid: int) -> Group:
        """The group of a process that it has started."""

    def close(self) -> None: ...


class AgentClient:
    """Sends requests to the agent of one machine. Its answers are passed on unchanged; nobody
    trusts them."""

    def __init__(
        self,
        setup: AgentSetup,
        *,
        cpu: float | None,
        on_exit: Callable[[int, int], None],
        on_lost: Callable[[], None],
        enlist: Callable[[int], None] | None = None,
    ) -> None:
        """`enlist` gets the pid of an agent before its first request; `on_exit` each process that
        ended, with its code. After `on_lost`, exits of the processes that the agent had started are
        no longer reported: they are this process's children."""
        self._setup = setup
        self._cpu = cpu
        self._enlist = enlist
        self._on_exit = on_exit
        self._on_lost = on_lost
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Packet]] = {}
        self._channel: socket.socket | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False
        self.pid: int | None = None
        self.network = OpenedNetwork()
        """Of a machine that had none yet."""

    async def start(self) -> None:
        """Return when it accepts requests. Raises OSError if it can't enter the machine."""
        ours, theirs = packet_pair()
        ours.settimeout(0)
        with theirs:
            self.pid = fork_agent(theirs, self._setup)
            if self._enlist is not None:
                self._enlist(self.pid)
        try:
            async with asyncio.timeout(_READY_SEC):
                packet = await receive(ours)
        except BaseException:
            ours.close()
            raise
        if packet is None or "ready" not in packet.message:
            ours.close()
            reason = "no answer" if packet is None else packet.message.get("failed")
            raise AgentLostError(f"the agent could not start: {reason}")
        sockets = tuple(socket.socket(fileno=each) for each in packet.descriptors)
        self.network = OpenedNetwork(sockets, packet.message.get("missing_network"))
        pin([self.pid], self._cpu)
        self._channel = ours
        self._reading = asyncio.ensure_future(self._read(ours))

    async def ask(
        self, operation: str, arguments: dict[str, Any], descriptors: tuple[int, ...] = ()
    ) -> Packet:
        """Its answer, a result or a refusal. Raises AgentLostError."""
        channel = await self._connected()
        number = next(self._numbers)
        answer: asyncio.Future[Packet] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            request = {"op": operation, "number": number, "arguments": arguments}
            await send(channel, request, descriptors=descriptors)
            return await answer
        except BrokenPipeError as error:
            raise AgentLostError from error
        finally:
            self._waiting.pop(number, None)

    def group(self, pid: int) -> ProcessGroup:
        return ProcessGroup(pid, parents=(self.pid, os.getpid()))

    def close(self) -> None:
        self._is_closed = True
        if self._reading is not None:
            self._reading.cancel()
        if self._channel is not None:
            self._channel.close()

    async def _connected(self) -> socket.socket:
        async with self._starting:
            if self._channel is None and not self._is_closed:
                await self.start()
        if self._channel is None:
            raise AgentLostError("the agent is gone")
        return self._channel

    async def _read(self, channel: socket.socket) -> None:
        with suppress(OSError):
            while (packet := await receive(channel)) is not None:
                self._handle(packet)
        self._lose(channel)

    def _handle(self, packet: Packet) -> None:
        message = packet.message
        number, pid, code = message.get("number"), message.get("exited"), message.get("code")
        answer = self._waiting.get(number) if isinstance(number, int) else None
        if answer is not None and not answer.done():
            answer.set_result(packet)
            return
        packet.close()
        if isinstance(pid, int) and isinstance(code, int):
            self._on_exit(pid, code)

    def _lose(self, channel: socket.socket) -> None:
        channel.close()
        self._channel = None
        if self._is_closed:
            return
        if self.pid is not None:
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.pid = None
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(AgentLostError("the agent died"))
        self._on_lost()
