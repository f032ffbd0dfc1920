"""The ways out of a machine: the egress proxy on its loopback, for good and for a clone."""

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from sandyard.runtime.local.agent_client import AgentClient
from sandyard.runtime.local.inside import CA_BUNDLE, EGRESS_PORT
from sandyard.runtime.local.packets import Packet
from sandyard.runtime.local.records import LocalRunFolder, Spec
from sandyard.runtime.network_model import EgressCounter, EgressPolicy, Network

if TYPE_CHECKING:
    from sandyard.runtime.local.egress_proxy import EgressProxy

_ACCEPTED_AT_ONCE = 16
_ACCEPTED_PER_SEC = 200
_REPORT_SEC = 0.2
_BUFFER_BYTES = 64 * 1024


class EgressServer:
    """Serves a proxy on a listener. Whoever connects in a flood waits: the machine's supervisor,
    which this is a part of, has more to do."""

    def __init__(self, listener: socket.socket, make_proxy: "Callable[[], EgressProxy]") -> None:
        listener.settimeout(0)
        self._listener = listener
        self._make_proxy = make_proxy
        self._proxy: EgressProxy | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._resume: asyncio.TimerHandle | None = None
        self._listen()

    @property
    def proxy(self) -> "EgressProxy | None":
        """Made when somebody first connects."""
        return self._proxy

    def close(self) -> None:
        if self._listener.fileno() < 0:
            return
        if self._resume is not None:
            self._resume.cancel()
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        for task in self._tasks:
            task.cancel()

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        accepted = 0
        with suppress(OSError):
            while accepted < _ACCEPTED_AT_ONCE:
                connection, _ = self._listener.accept()
                accepted += 1
                task = asyncio.ensure_future(self._serve(connection))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        pause_sec = max(accepted, 1) / _ACCEPTED_PER_SEC
        self._resume = loop.call_later(pause_sec, self._listen)

    async def _serve(self, connection: socket.socket) -> None:
        self._proxy = self._proxy or self._make_proxy()
        connection.settimeout(0)
        try:
            streams = await asyncio.open_connection(sock=connection, limit=_BUFFER_BYTES)
        except OSError:
            connection.close()
            return
        await self._proxy(*streams)


class MachineEgress:
    """The way out that a machine has for all its life, by the policy that its owner chose."""

    def __init__(self, folder: LocalRunFolder, spec: Spec, *, note: Callable[[str], None]) -> None:
        """`note` is told each host that is blocked, once."""
        self._folder = folder
        self._policy = EgressPolicy(spec.network, spec.allowed_hosts, spec.egress_networks)
        self._counter = EgressCounter()
        self._note = note
        self._server: EgressServer | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._written_at = 0.0

    async def open(self, agent: AgentClient) -> None:
        """Raises OSError."""
        packet = await agent.ask("listen", {"port": EGRESS_PORT})
        if "result" not in packet.message:
            raise OSError(f"there is no way out: {packet.message.get('message')}")
        [descriptor] = packet.descriptors
        self._write()
        self._server = EgressServer(socket.socket(fileno=descriptor), self._make_proxy)

    def set_network(self, network: Network) -> None:
        self._policy = replace(self._policy, network=network)
        if self._server is not None and self._server.proxy is not None:
            self._server.proxy.change(self._policy)
        self._write()

    def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
        if self._server is not None:
            self._write()
            self._server.close()

    def _make_proxy(self) -> "EgressProxy":
        # what it takes is only paid for where something goes out
        from sandyard.runtime.local.egress_proxy import EgressProxy

        return EgressProxy(self._policy, counter=self._counter, on_change=self._changed)

    def _changed(self, line: str | None) -> None:
        if line is not None:
            self._note(line)
        if self._writing is None:
            wait_sec = max(0.0, self._written_at + _REPORT_SEC - time.monotonic())
            self._writing = asyncio.get_running_loop().call_later(wait_sec, self._write)

    def _write(self) -> None:
        self._writing = None
        self._written_at = time.monotonic()
        report = self._counter.report(self._policy.network)
        with suppress(OSError):  # a full disk ends no machine here
            self._folder.write("egress", asdict(report), durable=False)


class EgressListeners:
    """The way out for a clone, opened and closed by a session's connection."""

    def __init__(self, agent: AgentClient, spec: Spec) -> None:
        self._agent = agent
        self._spec = spec

    async def open(self) -> "EgressListener | Packet":
        """The listener, or the packet with which the agent refused."""
        packet = await self._agent.ask("listen", {"port": 0})
        if "result" not in packet.message:
            return packet
        [descriptor] = packet.descriptors
        return EgressListener(socket.socket(fileno=descriptor), self._spec)


class EgressListener:
    def __init__(self, listener: socket.socket, spec: Spec) -> None:
        self._port = listener.getsockname()[1]
        self._spec = spec
        self._server = EgressServer(listener, self._make_proxy)

    def _make_proxy(self) -> "EgressProxy":
        from sandyard.runtime.local.egress_proxy import EgressProxy

        return EgressProxy(EgressPolicy("internet", (), self._spec.allowed_networks))

    def told(self) -> dict[str, Any]:
        proxy = f"http://127.0.0.1:{self._port}"
        environment = {"https_proxy": proxy, "no_proxy": "", "NO_PROXY": ""}
        if self._spec.ca_file is not None:
            is_isolated = self._spec.isolation != "none"
            environment["GIT_SSL_CAINFO"] = CA_BUNDLE if is_isolated else self._spec.ca_file
        return {"environment": environment}

    def refused(self) -> str | None:
        proxy = self._server.proxy
        return None if proxy is None else proxy.private_host

    def close(self) -> None:
        self._server.close()
