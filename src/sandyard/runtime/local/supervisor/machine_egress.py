"""A machine's egress: the proxy on its loopback, permanent or for a clone."""

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict

from sandyard.runtime.local.ipc.packets import Packet
from sandyard.runtime.local.records.run_folder import LocalRunFolder, Spec
from sandyard.runtime.local.root_filesystems.settings import CA_BUNDLE, EGRESS_PORT
from sandyard.runtime.local.supervisor.agent_client import AgentClient
from sandyard.runtime.local.supervisor.egress_process import EgressProcess
from sandyard.runtime.network_model import EgressPolicy, EgressReport, EgressRules, Network


class MachineEgress:
    """A machine's egress for its whole life, by the policy that its owner chose."""

    def __init__(
        self, folder: LocalRunFolder, spec: Spec, *, own: set[int], note: Callable[[str], None]
    ) -> None:
        """`own` has the pids of proxies; `note` is called once for each blocked host."""
        self._folder = folder
        self._spec = spec
        self._own = own
        self._note = note
        self._process: EgressProcess | None = None

    async def open(self, agent: AgentClient) -> None:
        """Raises OSError."""
        packet = await agent.ask("listen", {"port": EGRESS_PORT})
        if "result" not in packet.message:
            raise OSError(f"the egress proxy can't listen: {packet.message.get('message')}")
        [descriptor] = packet.descriptors
        spec = self._spec
        self._process = EgressProcess(
            socket.socket(fileno=descriptor),
            EgressPolicy(spec.network, spec.allowed_hosts, spec.egress_networks, spec.rules),
            uid=spec.uid,
            own=self._own,
            on_report=self._changed,
        )
        self._write(self._process.report)

    async def set_network(self, network: Network, rules: EgressRules) -> None:
        if self._process is not None:
            await self._process.set_network(network, rules)
            self._write(self._process.report)

    async def close(self) -> None:
        if self._process is not None:
            await self._process.refresh_report()
            self._process.close()

    def _changed(self, line: str | None) -> None:
        if line is not None:
            self._note(line)
        if self._process is not None:
            self._write(self._process.report)

    def _write(self, report: EgressReport) -> None:
        with suppress(OSError):  # a full disk must not end the machine
            self._folder.write("egress", asdict(report), durable=False)


class EgressListeners:
    """Egress for a clone, opened and closed by a session's connection."""

    def __init__(self, agent: AgentClient, spec: Spec, *, own: set[int]) -> None:
        self._agent = agent
        self._spec = spec
        self._own = own

    async def open(self) -> "EgressListener | Packet":
        """The listener, or the agent's refusal packet."""
        packet = await self._agent.ask("listen", {"port": 0})
        if "result" not in packet.message:
            return packet
        [descriptor] = packet.descriptors
        return EgressListener(socket.socket(fileno=descriptor), self._spec, self._own)


class EgressListener:
    def __init__(self, listener: socket.socket, spec: Spec, own: set[int]) -> None:
        self._port = listener.getsockname()[1]
        self._spec = spec
        policy = EgressPolicy("internet", (), spec.allowed_networks)
        self._process = EgressProcess(listener, policy, uid=spec.uid, own=own)

    def environment(self) -> dict[str, str]:
        proxy = f"http://127.0.0.1:{self._port}"
        environment = {"https_proxy": proxy, "no_proxy": "", "NO_PROXY": ""}
        if self._spec.ca_file is not None:
            is_isolated = self._spec.isolation != "none"
            environment["GIT_SSL_CAINFO"] = CA_BUNDLE if is_isolated else self._spec.ca_file
        return environment

    async def refused(self) -> str | None:
        await self._process.refresh_report()
        return self._process.private_host

    def close(self) -> None:
        self._process.close()
