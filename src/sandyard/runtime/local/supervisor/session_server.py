"""The supervisor's side of sessions: answers servers through a socket in the run's folder.

A connection carries one request, or several related ones: a draft that is not committed when its
connection closes is discarded. Anyone who may enter the folder may send requests.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandyard.runtime.local.ipc.packets import MOST_BYTES, Packet, packet_socket, receive, send
from sandyard.runtime.local.limits.watchdog import Watchdog
from sandyard.runtime.local.records.run_folder import SOCKET
from sandyard.runtime.local.root_filesystems.settings import EGRESS_PORT
from sandyard.runtime.local.storage.snapshots import SnapshotFailedError
from sandyard.runtime.local.supervisor.agent_client import AgentClient, AgentLostError
from sandyard.runtime.local.supervisor.commands import CommandTable, RunningCommand, valid_signal
from sandyard.runtime.local.supervisor.listening_ports import MachinePorts
from sandyard.runtime.local.supervisor.machine_egress import EgressListener, EgressListeners
from sandyard.runtime.model import Snapshot
from sandyard.runtime.network_model import EgressRules, Network

_BACKLOG = 128
_SHORT_COMMAND_SEC = 0.02
_INPUT_SEC = 30
"""For a process to accept some of its input: until then a client's disconnect goes unnoticed."""
_FILE_OPERATIONS = frozenset(
    {
        *("stat_file", "open_file", "create_file", "commit_file", "discard_file", "make_folder"),
        "set_attributes",
        *("apply", "move", "list_folder", "remove", "read_tar", "write_tar", "watch", "connect"),
    }
)

Starter = Callable[[AgentClient, dict[str, Any]], Awaitable[Packet]]
Handler = Callable[[dict[str, Any], bytes], Awaitable[Packet]]
StartProgram = Callable[[AgentClient, dict[str, Any]], Awaitable[Packet | str]]


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents of the machine's user, and of its root if it has one."""

    user: AgentClient
    root: AgentClient | None = None

    def chosen(self, *, as_root: bool) -> AgentClient:
        return self.root if as_root and self.root is not None else self.user


class SessionServer:
    def __init__(
        self,
        agents: Agents,
        commands: CommandTable,
        *,
        ports: MachinePorts,
        start_program: StartProgram,
        egress: EgressListeners,
        set_network: Callable[[Network, EgressRules], Awaitable[None]],
        pack: Callable[[Path], Awaitable[Snapshot]],
        watchdog: Watchdog,
    ) -> None:
        self._agents = agents
        self._commands = commands
        self._ports_inside = ports
        self._start_program = start_program
        self._egress = egress
        self._set_network_to = set_network
        self._pack_to = pack
        self._watchdog = watchdog
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._starters: dict[str, Starter] = {"start": self._start, "run": self._run}
        self._handlers: dict[str, Handler] = {
            "processes": self._list,
            "get": self._get,
            "wait": self._wait,
            "output": self._output,
            "input": self._input,
            "close_input": self._close_input,
            "resize": self._resize,
            "signal": self._signal,
            "ports": self._ports,
            "sample": self._measure,
            "set_network": self._set_network,
            "pack": self._pack,
        }

    def start(self) -> None:
        """Listen in the current folder; the path of a socket must be short."""
        Path(SOCKET).unlink(missing_ok=True)
        listener = packet_socket()
        listener.settimeout(0)
        listener.bind(SOCKET)
        listener.listen(_BACKLOG)
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener.fileno(), self._accept, listener)

    async def close(self) -> None:
        """Stop answering; waiting clients see that."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            channel, _ = listener.accept()
            channel.settimeout(0)
            task = asyncio.ensure_future(self._serve(channel))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, channel: socket.socket) -> None:
        state = _ConnectionState()
        with channel, suppress(OSError):
            while (request := await receive(channel)) is not None:
                answering = asyncio.ensure_future(self._answer(request, state))
                answer = await _unless_closed(answering, channel)
                if answer is None:
                    break
                try:
                    await send(channel, answer.message, answer.data, answer.descriptors)
                finally:
                    answer.close()
        if state.egress is not None:
            state.egress.close()
        for draft, agent in state.drafts.items():
            with suppress(OSError):
                (await agent.ask("discard_file", {"draft": draft})).close()

    async def _answer(self, request: Packet, state: "_ConnectionState") -> Packet:
        name = str(request.message.get("op"))
        arguments = request.message.get("arguments", {})
        agent = self._agents.chosen(as_root=request.message.get("as_root") is True)
        try:
            if name == "connect" and arguments["port"] == EGRESS_PORT:
                return _refused("PORT_CLOSED")  # the egress proxy is not reachable from outside
            if name in _FILE_OPERATIONS:
                return await self._pass_on(agent, name, arguments, request.descriptors, state)
            if name == "open_egress":
                return await self._open_egress(state)
            if name == "refused_egress":
                return _result(None if state.egress is None else await state.egress.refused())
            if name in self._starters:
                return await self._starters[name](agent, arguments)
            return await self._handlers[name](arguments, request.data)
        except AgentLostError as error:
            return _refused("AGENT_LOST", str(error))
        except KeyError as error:
            return _refused("UNKNOWN_REQUEST", str(error))
        finally:
            request.close()

    async def _pass_on(
        self,
        agent: AgentClient,
        name: str,
        arguments: dict[str, Any],
        descriptors: tuple[int, ...],
        state: "_ConnectionState",
    ) -> Packet:
        answer = await agent.ask(name, arguments, descriptors)
        result = answer.message.get("result")
        if name == "create_file" and isinstance(result, dict):
            state.drafts[result["draft"]] = agent
            answer.message["most_bytes"] = self._watchdog.free_bytes()
        elif name in ("commit_file", "discard_file") and "errno" not in answer.message:
            state.drafts.pop(arguments["draft"], None)
        return answer

    async def _open_egress(self, state: "_ConnectionState") -> Packet:
        opened = await self._egress.open()
        if isinstance(opened, Packet):
            return opened
        state.egress = opened
        return _result({"environment": opened.environment()})

    async def _start(self, agent: AgentClient, arguments: dict[str, Any]) -> Packet:
        start = self._start_program if arguments["is_program"] else self._commands.start
        started = await start(agent, arguments)
        if isinstance(started, Packet):
            return started
        return _result(self._command({"id": started}).state)

    async def _run(self, agent: AgentClient, arguments: dict[str, Any]) -> Packet:
        """Start it, and return its output: all of it and its exit, if it ends within a moment."""
        started = await self._start(agent, arguments)
        result = started.message.get("result")
        if result is None:
            return started
        command = self._command(result)
        with suppress(TimeoutError):
            async with asyncio.timeout(_SHORT_COMMAND_SEC):
                await command.ended.wait()
        return _output_of(command, 0)

    async def _list(self, _arguments: dict[str, Any], _data: bytes) -> Packet:
        return _result(self._commands.list())

    async def _get(self, arguments: dict[str, Any], _data: bytes) -> Packet:
        return self._with(arguments, lambda command: command.state)

    async def _wait(self, arguments: dict[str, Any], _data: bytes) -> Packet:
        command = self._commands.get(arguments["id"])
        if command is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(arguments["timeout_sec"]):
                    await command.ended.wait()
        return await self._get(arguments, b"")

    async def _output(self, arguments: dict[str, Any], _data: bytes) -> Packet:
        """Output from an offset on; with `wait`, waits until there is some."""
        command = self._commands.get(arguments["id"])
        if command is None:
            return _refused("PROCESS_NOT_FOUND")
        offset = int(arguments["offset"])
        while arguments["wait"] and command.ring.end <= offset and not command.ended.is_set():
            await command.until_changed()
        return _output_of(command, offset)

    async def _input(self, arguments: dict[str, Any], data: bytes) -> Packet:
        command = self._commands.get(arguments["id"])
        if command is None:
            return _refused("PROCESS_NOT_FOUND")
        try:
            is_taken = await command.write(data, timeout_sec=_INPUT_SEC)
        except TimeoutError:
            return _refused("INPUT_NOT_TAKEN")
        return _result(None) if is_taken else _refused("INPUT_CLOSED")

    async def _close_input(self, arguments: dict[str, Any], _data: bytes) -> Packet:
        return self._with(arguments, RunningCommand.close_input)

    async def _resize(self, arguments: dict[str, Any], _data: bytes) -> Packet:
        command = self._commands.get(arguments["id"])
        if command is not None and not command.is_terminal:
            return _refused("NOT_A_TERMINAL")
        return self._with(
            arguments, lambda command: command.resize(arguments["columns"], arguments["rows"])
        )

    async def _signal(self, arguments: dict[str, Any], _data: bytes) -> Packet:
        if not valid_signal(number := arguments["signal"]):
            return _refused("INVALID_SIGNAL")
        return self._with(arguments, lambda command: command.signal(number))

    async def _ports(self, _arguments: dict[str, Any], _data: bytes) -> Packet:
        ports = self._ports_inside.listening()
        return _result([port for port in ports if port != EGRESS_PORT])

    async def _set_network(self, arguments: dict[str, Any], _data: bytes) -> Packet:
        await self._set_network_to(arguments["network"], EgressRules.of(arguments["rules"]))
        return _result(None)

    async def _pack(self, arguments: dict[str, Any], _data: bytes) -> Packet:
        try:
            await self._pack_to(Path(arguments["to"]))
        except (SnapshotFailedError, OSError) as error:
            return _refused("NOT_PACKED", str(error))
        return _result(None)

    async def _measure(self, _arguments: dict[str, Any], _data: bytes) -> Packet:
        return _result(await asyncio.to_thread(self._watchdog.sample))

    def _command(self, arguments: dict[str, Any]) -> RunningCommand:
        command = self._commands.get(arguments["id"])
        if command is None:
            raise KeyError("id")
        return command

    def _with(self, arguments: dict[str, Any], act: Callable[[RunningCommand], Any]) -> Packet:
        command = self._commands.get(arguments["id"])
        return _refused("PROCESS_NOT_FOUND") if command is None else _result(act(command))


@dataclass(slots=True)
class _ConnectionState:
    """What ends with a connection: drafts and an egress listener."""

    drafts: dict[str, AgentClient] = field(default_factory=dict)
    egress: EgressListener | None = None


async def _unless_closed(
    answering: "asyncio.Future[Packet]", channel: socket.socket
) -> Packet | None:
    """The answer; None, without further waiting, if the other side has gone."""
    loop = asyncio.get_running_loop()
    gone = loop.create_future()

    def look() -> None:
        try:
            is_closed = not channel.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            is_closed = True
        if is_closed and not gone.done():
            gone.set_result(None)

    loop.add_reader(channel.fileno(), look)
    try:
        await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(channel.fileno())
        if not answering.done():
            answering.cancel()
    return answering.result() if answering.done() and not answering.cancelled() else None


def _output_of(command: RunningCommand, offset: int) -> Packet:
    is_over = command.ended.is_set()
    output_slice = command.ring.read(offset, most=MOST_BYTES)
    result = {
        "process": command.state,
        "chunks": output_slice.chunks,
        "offset": output_slice.offset,
        "skipped": output_slice.skipped,
        "is_over": is_over and output_slice.offset == command.ring.end,
    }
    return Packet({"result": result}, output_slice.data)


def _result(result: Any) -> Packet:
    return Packet({"result": result})


def _refused(code: str, message: str = "") -> Packet:
    return Packet({"refused": code, "message": message})
