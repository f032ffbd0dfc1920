"""The supervisor's side of sessions: answers servers through a socket in the run's folder.

A connection carries one request, or several related ones: a draft that is not committed when its
connection closes is discarded. Anyone who may enter the folder may send requests.
"""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandyard.runtime.errors import MemoryNotKeptError, SecretsUnsupportedError
from sandyard.runtime.guest.machine import listening
from sandyard.runtime.local.agent.network import LISTENER_PORT
from sandyard.runtime.local.ipc.packets import SOCKET, Packet, packet_socket, receive, send
from sandyard.runtime.local.limits.watchdog import Watchdog
from sandyard.runtime.local.root_filesystems.settings import EGRESS_PORT
from sandyard.runtime.local.storage.snapshots import SnapshotFailedError
from sandyard.runtime.local.supervisor.agent_client import Agent, AgentLostError
from sandyard.runtime.local.supervisor.command_requests import (
    CommandRequests,
    refused,
    result_of,
)
from sandyard.runtime.local.supervisor.commands import CommandTable
from sandyard.runtime.local.supervisor.machine_egress import EgressListener, MachineEgress
from sandyard.runtime.local.supervisor.machine_process import MachineProcess
from sandyard.runtime.local.supervisor.program import SupervisedProgram
from sandyard.runtime.model import Snapshot
from sandyard.runtime.network_model import EgressRules
from sandyard.runtime.secrets_model import MachineSecrets

_BACKLOG = 128
_FILE_OPERATIONS = frozenset(
    {
        *("stat_file", "open_file", "create_file", "commit_file", "discard_file", "make_folder"),
        "set_attributes",
        *("apply", "move", "list_folder", "remove", "read_tar", "write_tar", "watch", "connect"),
    }
)
_NOT_ITS_OWN = (EGRESS_PORT, LISTENER_PORT)

Handler = Callable[[dict[str, Any]], Awaitable[Packet]]


async def listening_ports(machine: MachineProcess) -> list[int]:
    """The listening TCP ports of the machine's network, sorted."""
    if machine.kernel is not None:
        found = (await machine.agent.ask("listening", {})).message.get("result")
        return [port for port in found or () if isinstance(port, int)]
    return listening(f"/proc/{machine.pid_inside}/net")


class SessionServer:
    def __init__(
        self,
        machine: MachineProcess,
        commands: CommandTable,
        program: SupervisedProgram,
        *,
        egress: MachineEgress,
        pack: Callable[..., Awaitable[Snapshot]],
        suspend: Callable[[], Awaitable[None]],
        watchdog: Watchdog,
    ) -> None:
        self._machine = machine
        self._requests = CommandRequests(commands, program.start)
        self._program = program
        self._egress = egress
        self._pack_to = pack
        self._suspend_it = suspend
        self._watchdog = watchdog
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[str, Handler] = {
            "ports": self._ports,
            "sample": self._measure,
            "set_network": self._set_network,
            "pack": self._pack,
            "suspend": self._suspend,
            "stop_program": self._stop_program,
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
        with channel, state.held, suppress(OSError):
            while (request := await receive(channel)) is not None:
                answering = asyncio.ensure_future(self._answer(request, state))
                answer = await _unless_closed(answering, channel)
                if answer is None:
                    break
                try:
                    await send(channel, answer.message, answer.data, answer.descriptors)
                finally:
                    answer.close()
        for draft, agent in state.drafts.items():
            with suppress(OSError):
                (await agent.ask("discard_file", {"draft": draft})).close()

    async def _answer(self, request: Packet, state: "_ConnectionState") -> Packet:
        name = str(request.message.get("op"))
        arguments = request.message.get("arguments", {})
        as_root = request.message.get("as_root") is True
        agent = (self._machine.root_agent if as_root else None) or self._machine.agent
        try:
            if name == "connect" and arguments["port"] in _NOT_ITS_OWN:
                return refused("PORT_CLOSED")  # the egress proxy is not reachable from outside
            if name in _FILE_OPERATIONS:
                return await self._pass_on(agent, name, arguments, request.descriptors, state)
            if name == "open_egress":
                return await self._open_egress(state)
            if name == "refused_egress":
                return result_of(None if state.egress is None else await state.egress.refused())
            if name == "set_secrets":
                return await self._set_secrets(request.data)
            if (handle := self._handlers.get(name)) is not None:
                return await handle(arguments)
            return await self._requests.answer(agent, name, arguments, request.data, state.held)
        except AgentLostError as error:
            return refused("AGENT_LOST", str(error))
        except KeyError as error:
            return refused("UNKNOWN_REQUEST", str(error))
        finally:
            request.close()

    async def _pass_on(
        self,
        agent: Agent,
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
        opened = await self._egress.open_listener(self._machine.agent)
        if isinstance(opened, Packet):
            return opened
        state.egress = opened
        state.held.callback(opened.close)
        return result_of({"environment": opened.environment()})

    async def _ports(self, _arguments: dict[str, Any]) -> Packet:
        found = await self._program.listening()
        return result_of([port for port in found if port not in _NOT_ITS_OWN])

    async def _stop_program(self, _arguments: dict[str, Any]) -> Packet:
        await self._program.stop()
        return result_of(None)

    async def _set_network(self, arguments: dict[str, Any]) -> Packet:
        await self._egress.set_network(arguments["network"], EgressRules.of(arguments["rules"]))
        return result_of(None)

    async def _set_secrets(self, content: bytes) -> Packet:
        if not await self._egress.set_secrets(MachineSecrets.of(json.loads(content))):
            return refused(SecretsUnsupportedError.code)
        return result_of(None)

    async def _pack(self, arguments: dict[str, Any]) -> Packet:
        return await _packed(
            self._pack_to(Path(arguments["to"]), has_memory=arguments["has_memory"])
        )

    async def _suspend(self, _arguments: dict[str, Any]) -> Packet:
        return await _packed(self._suspend_it())

    async def _measure(self, _arguments: dict[str, Any]) -> Packet:
        return result_of(await asyncio.to_thread(self._watchdog.sample))


async def _packed(packing: Awaitable[Any]) -> Packet:
    try:
        await packing
    except SnapshotFailedError as error:
        return refused("NOT_PACKED", str(error))
    except MemoryNotKeptError as error:
        return refused(error.code, error.message)
    except OSError as error:  # the host's disk
        return refused("UNAVAILABLE", str(error))
    return result_of(None)


@dataclass(slots=True)
class _ConnectionState:
    """What ends with a connection: drafts, an egress listener, and that commands wait for it."""

    held: ExitStack = field(default_factory=ExitStack)
    drafts: dict[str, Agent] = field(default_factory=dict)
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
