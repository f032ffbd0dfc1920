"""A machine's egress: the proxy on its loopback, permanent or for a clone."""

import asyncio
import encodings.idna  # noqa: F401 - names are looked up by it, and the process can't load it
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NoReturn

from sandyard.runtime.local.agent.network import OpenedNetwork
from sandyard.runtime.local.egress.server import EgressSockets, serve_egress
from sandyard.runtime.local.host.system_calls import close_all_but, give_up_rights
from sandyard.runtime.local.ipc.packets import Packet, packet_pair, receive, send
from sandyard.runtime.local.records.run_folder import LocalRunFolder, Spec
from sandyard.runtime.local.root_filesystems.settings import CA_BUNDLE, EGRESS_PORT
from sandyard.runtime.local.supervisor.agent_client import Agent
from sandyard.runtime.network_model import (
    EgressPolicy,
    EgressReport,
    EgressRules,
    Network,
    SecretUse,
    read_report,
)
from sandyard.runtime.secrets_model import NO_SECRETS, MachineSecrets

EGRESS_UIDS = 100_000
"""Offset of the proxy's uid from its machine's."""
_AGAIN_SEC = 1.0
_ANSWER_SEC = 5.0
_MEMORY_BYTES = 512 << 20
_OPEN_FILES = 1024
_LINE = 400
_THREADS = 64


class EgressProcess:
    """Serves a machine's sockets: starts when something arrives, and restarts if it has died."""

    def __init__(
        self,
        sockets: EgressSockets,
        policy: EgressPolicy,
        *,
        uid: int | None,
        own: set[int],
        on_report: Callable[[str | None], None] = lambda _line: None,
        secrets: MachineSecrets = NO_SECRETS,
    ) -> None:
        """`uid` is the machine's. The process's pid is in `own` while it lives. `on_report` is
        called when there is news, with the line of a refusal not reported before."""
        self.report = EgressReport(policy.network)
        self.private_host: str | None = None
        """The last host that was refused because its address is private."""
        self._sockets = sockets
        self._policy = policy
        self._uid = uid
        self._own = own
        self._on_report = on_report
        self._secrets = secrets
        self._has_injector = False
        """Whether the process that serves now has loaded what puts secrets into requests."""
        self._channel: socket.socket | None = None
        self._pid: int | None = None
        self._reading: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._number = 0
        self._is_closed = False
        self._listen()

    async def set_network(self, network: Network, rules: EgressRules) -> None:
        """Return once nothing goes out that this network does not allow."""
        self._policy = replace(self._policy, network=network, rules=rules)
        self.report = replace(self.report, network=network)
        await self.refresh_report()

    async def set_secrets(self, secrets: MachineSecrets) -> None:
        """Return once they are used, and no others."""
        self._secrets = secrets
        known = [each.id for each in self.report.secrets]
        new = [SecretUse(each.id) for each in secrets.bound if each.id not in known]
        self.report = replace(self.report, secrets=[*self.report.secrets, *new])
        if self._has_injector or not secrets.bound:
            await self.refresh_report(secrets=secrets.described())
        else:
            self._kill()  # its successor begins with them

    async def refresh_report(self, **more: Any) -> None:
        """Return when the report covers everything up to now."""
        if self._channel is None:
            return
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_ANSWER_SEC):
                policy, rules = self._policy, asdict(self._policy.rules)
                request = {"network": policy.network, "rules": rules, "number": self._number}
                request |= more
                await send(self._channel, request)
                await answer
        except (TimeoutError, OSError):
            self._kill()  # its successor applies the policy from the start
        finally:
            self._answers.pop(self._number, None)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_listening()
        for each in self._sockets.all():
            each.close()
        self._kill()
        if self._reading is not None:
            self._reading.cancel()
        if self._channel is not None:
            self._channel.close()

    def _listen(self) -> None:
        if not self._is_closed:
            for each in self._sockets.all():
                asyncio.get_running_loop().add_reader(each, self._begin)

    def _stop_listening(self) -> None:
        for each in self._sockets.all():
            asyncio.get_running_loop().remove_reader(each)

    def _begin(self) -> None:
        self._stop_listening()
        ours, theirs = packet_pair()
        ours.settimeout(0)
        self._has_injector = bool(self._secrets.bound)
        with theirs:
            pid = self._pid = self._fork(theirs)
        self._own.add(pid)
        self._channel = ours
        self._reading = asyncio.ensure_future(self._read(ours, pid))

    def _fork(self, channel: socket.socket) -> int:
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            uid = None if self._uid is None else self._uid + EGRESS_UIDS
            start = partial(
                serve_egress, channel, self._sockets, self._policy, self.report, self._secrets
            )
            _become_proxy(uid, channel, self._sockets, start)
        return pid

    async def _read(self, channel: socket.socket, pid: int) -> None:
        try:
            with suppress(OSError, ValueError):
                while (packet := await receive(channel)) is not None:
                    self._handle_report(packet)
        finally:
            _end(pid)
            self._own.discard(pid)
        self._channel = self._pid = None
        channel.close()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(None)
        asyncio.get_running_loop().call_later(_AGAIN_SEC, self._listen)

    def _handle_report(self, packet: Packet) -> None:
        """Raises ValueError if it is not a proxy's message."""
        packet.close()
        message = packet.message
        self.report = read_report(message.get("report"), self._policy.network)
        self.private_host = _text(message.get("private_host"))
        self._on_report(_text(message.get("line")))
        answered = message.get("answered", 0)
        answer = self._answers.get(answered) if isinstance(answered, int) else None
        if answer is not None and not answer.done():
            answer.set_result(None)

    def _kill(self) -> None:
        """Its reader sees that, and waits for its exit."""
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)


def _text(found: object) -> str | None:
    return found[:_LINE] if isinstance(found, str) else None


def _end(pid: int) -> None:
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _become_proxy(
    uid: int | None,
    channel: socket.socket,
    sockets: EgressSockets,
    serve: Callable[[], Coroutine[Any, Any, None]],
) -> NoReturn:
    """All code that the process will run is loaded: from here on it may read none of our files."""
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        channel.settimeout(None)
        served = [each.fileno() for each in sockets.all()]
        close_all_but(channel.fileno(), *served, 0, 1, 2)
        os.chdir("/")
        serving = serve()
        _limit(is_alone=uid is not None)
        give_up_rights(uid)
        asyncio.run(serving)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _limit(*, is_alone: bool) -> None:
    """With its own uid, threads are limited to those that resolve names; no other process."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_DATA: _MEMORY_BYTES,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
    }
    if is_alone:
        limits[resource.RLIMIT_NPROC] = _THREADS
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))


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
        self._secrets = NO_SECRETS

    async def open(self, agent: Agent, network: OpenedNetwork) -> None:
        """Raises OSError."""
        if network.missing is not None:
            self._note(f"sandyard: only the HTTP proxy leads to the network: {network.missing}")
        packet = await agent.ask("listen", {"port": EGRESS_PORT})
        if "result" not in packet.message:
            raise OSError(f"the egress proxy can't listen: {packet.message.get('message')}")
        [descriptor] = packet.descriptors
        spec = self._spec
        self._process = EgressProcess(
            EgressSockets(socket.socket(fileno=descriptor), *network.sockets),
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

    async def set_secrets(self, secrets: MachineSecrets) -> bool:
        """Whether there is a proxy that can use them."""
        if self._process is None:
            return False
        self._secrets = secrets
        await self._process.set_secrets(secrets)
        self._write(self._process.report)
        return True

    async def open_listener(self, agent: Agent) -> "EgressListener | Packet":
        """Egress for a clone, or the agent's refusal packet."""
        packet = await agent.ask("listen", {"port": 0})
        if "result" not in packet.message:
            return packet
        [descriptor] = packet.descriptors
        listener, port = socket.socket(fileno=descriptor), int(packet.message["result"])
        return EgressListener(listener, port, self._spec, self._own, self._secrets)

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


class EgressListener:
    def __init__(
        self,
        listener: socket.socket,
        port: int,
        spec: Spec,
        own: set[int],
        secrets: MachineSecrets,
    ) -> None:
        self._port = port
        self._spec = spec
        policy = EgressPolicy("internet", (), spec.allowed_networks)
        self._process = EgressProcess(
            EgressSockets(listener), policy, uid=spec.uid, own=own, secrets=secrets
        )

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
