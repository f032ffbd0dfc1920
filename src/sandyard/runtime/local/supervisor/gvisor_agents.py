"""The supervisor's side of the agents of a gVisor machine: one outside, for files; one inside, for
processes and ports."""

import asyncio
import itertools
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandyard.runtime.local.agent.inside import CONTROL
from sandyard.runtime.local.ipc.packets import Packet, packet_socket, readable, receive, send
from sandyard.runtime.local.supervisor.agent_client import AgentClient, AgentLostError
from sandyard.runtime.local.supervisor.process_groups import Group

_BACKLOG = 128
_DETACH_SEC = 10


class InsideClient:
    """Sends requests to the machine's first process. Its answers are hostile input."""

    def __init__(
        self, sockets: Path, owner: int, on_exit: Callable[[int, int], None], name: str = CONTROL
    ) -> None:
        """Its sockets in this folder are the uid's `owner`: root inside. `name` is the one to which
        the agent connects."""
        self._sockets = sockets
        self._owner = owner
        self._on_exit = on_exit
        self._numbers = itertools.count(1)
        self._names = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Packet]] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._channel: socket.socket | None = None
        self._is_connected = asyncio.Event()
        self._listeners: dict[int, str] = {}
        """Our socket for each port inside."""
        self._reading: asyncio.Future[None] | None = None
        self._name = name
        self._listener = self._listen(packet_socket(), name)

    async def connected(self) -> None:
        """Return when it accepts requests. Only the first that connects is it: nothing else runs
        inside then, or it is the only one that was told the name."""
        await readable(self._listener.fileno())
        channel, _ = self._listener.accept()
        channel.settimeout(0)
        self._listener.close()
        (self._sockets / self._name).unlink()
        packet = await receive(channel)
        if packet is None or "ready" not in packet.message:
            channel.close()
            raise AgentLostError("the agent inside could not start")
        self._channel = channel
        self._is_connected.set()
        self._reading = self._keep(self._read(channel))

    async def detach(self) -> str:
        """Return when it has closed all sockets from outside: then it waits for its signal, and
        connects to a socket of this name."""
        if self._channel is None or self._reading is None:
            raise AgentLostError("the agent inside is gone")
        self._is_connected.clear()
        self._name = f"{CONTROL}-{os.urandom(8).hex()}"
        await send(self._channel, {"op": "detach", "number": 0, "arguments": {"name": self._name}})
        async with asyncio.timeout(_DETACH_SEC):
            await asyncio.wait([self._reading])
        self._listener = self._listen(packet_socket(), self._name)
        return self._name

    async def ask(
        self, operation: str, arguments: dict[str, Any], descriptors: tuple[int, ...] = ()
    ) -> Packet:
        """During a checkpoint, after it. Raises AgentLostError."""
        await self._is_connected.wait()
        if self._channel is None:
            raise AgentLostError("the agent inside is gone")
        number = next(self._numbers)
        answer: asyncio.Future[Packet] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            request = {"op": operation, "number": number, "arguments": arguments}
            await send(self._channel, request, descriptors=descriptors)
            return await answer
        except BrokenPipeError as error:
            raise AgentLostError from error
        finally:
            self._waiting.pop(number, None)

    async def with_sockets(
        self, operation: str, arguments: dict[str, Any], names: tuple[str, ...]
    ) -> Packet:
        """The answer with our ends of new sockets, whose other ends are sent inside."""
        pairs = [socket.socketpair() for _ in names]
        try:
            packet = await self.ask(operation, arguments, tuple(one.fileno() for _, one in pairs))
            if "result" not in packet.message:
                return packet
            return Packet(packet.message, descriptors=tuple(one.detach() for one, _ in pairs))
        finally:
            for pair in pairs:
                for end in pair:
                    end.close()

    async def listen(self, arguments: dict[str, Any]) -> Packet:
        """A listener here, to which connections to a port inside go."""
        name = f"listener-{next(self._names)}"
        listener = self._listen(socket.socket(socket.AF_UNIX), name)
        packet = await self.ask("listen", {**arguments, "name": name})
        if "result" not in packet.message:
            listener.close()
            return packet
        self._listeners[packet.message["result"]] = name
        return Packet(packet.message, descriptors=(listener.detach(),))

    async def listen_again(self) -> None:
        """At the same ports as before a checkpoint. Raises AgentLostError."""
        for port, name in self._listeners.items():
            await self.ask("listen", {"port": port, "name": name})

    def tell(self, operation: str, arguments: dict[str, Any]) -> None:
        """A request whose answer nobody waits for."""
        self._keep(self._told(operation, arguments))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for each in (self._listener, self._channel):
            if each is not None:
                each.close()
        self._channel = None

    async def _told(self, operation: str, arguments: dict[str, Any]) -> None:
        with suppress(OSError):
            await self.ask(operation, arguments)

    def _listen(self, listener: socket.socket, name: str) -> socket.socket:
        path = self._sockets / name
        listener.settimeout(0)
        listener.bind(os.path.relpath(path))  # a whole path may be too long
        os.chown(path, self._owner, self._owner)
        path.chmod(0o600)
        listener.listen(_BACKLOG)
        return listener

    def _keep(self, work: Any) -> "asyncio.Future[None]":
        task: asyncio.Future[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read(self, channel: socket.socket) -> None:
        with suppress(OSError):
            while (packet := await receive(channel)) is not None:
                self._handle(packet)
        self._channel = None
        channel.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(AgentLostError("the agent inside died"))

    def _handle(self, packet: Packet) -> None:
        packet.close()
        message = packet.message
        number, pid, code = message.get("number"), message.get("exited"), message.get("code")
        answer = self._waiting.get(number) if isinstance(number, int) else None
        if answer is not None and not answer.done():
            answer.set_result(Packet(message))
        elif isinstance(pid, int) and isinstance(code, int):
            self._on_exit(pid, code)


class GvisorAgent:
    """Both agents as one: files outside, on the same folders; processes and ports inside."""

    def __init__(self, files: AgentClient, inside: InsideClient, *, as_root: bool) -> None:
        self._files = files
        self.inside = inside
        self._as_root = as_root

    async def ask(
        self, operation: str, arguments: dict[str, Any], descriptors: tuple[int, ...] = ()
    ) -> Packet:
        if operation == "start":
            names = _channel_names(arguments)
            arguments = {**arguments, "as_root": self._as_root}
            return await self.inside.with_sockets("start", arguments, names)
        if operation == "connect":
            return await self.inside.with_sockets("connect", arguments, ("connection",))
        if operation == "listen":
            return await self.inside.listen(arguments)
        if operation == "listening":
            return await self.inside.ask(operation, arguments)
        return await self._files.ask(operation, arguments, descriptors)

    def group(self, pid: int) -> Group:
        return _GroupInside(self.inside, pid)

    def close(self) -> None:
        self._files.close()
        self.inside.close()


class _GroupInside:
    def __init__(self, inside: InsideClient, pid: int) -> None:
        self._inside = inside
        self._pid = pid

    def signal(self, number: int) -> None:
        self._inside.tell("signal", {"pid": self._pid, "number": number})

    def resize(self, _terminal: int, columns: int, rows: int) -> None:
        self._inside.tell("resize", {"pid": self._pid, "columns": columns, "rows": rows})

    def close(self) -> None:
        """Nothing is held."""


def _channel_names(start: dict[str, Any]) -> tuple[str, ...]:
    """As the agent names them, in its order."""
    if start["terminal"]:
        return ("terminal",)
    has = {"stdin": start["has_input"], "stdout": True, "stderr": not start["is_program"]}
    return tuple(name for name, is_there in has.items() if is_there)
