"""The process of an egress proxy, after it has dropped all privileges."""

import asyncio
import socket
import time
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from sandyard.kit.clock import SystemClock
from sandyard.runtime.local.egress.proxy import EgressProxy
from sandyard.runtime.local.ipc.packets import receive_now, send_now
from sandyard.runtime.network_model import EgressCounter, EgressPolicy, EgressReport, EgressRules

_ACCEPTED_AT_ONCE = 16
_ACCEPTED_PER_SEC = 200
_REPORT_SEC = 0.2
_BUFFER_BYTES = 64 * 1024


async def serve_egress(
    channel: socket.socket, listener: socket.socket, policy: EgressPolicy, report: EgressReport
) -> None:
    """Serve, and report the traffic to the supervisor, until the supervisor has gone."""
    reporter = _Reporter(channel, policy, EgressCounter.of(report))
    EgressServer(listener, reporter.proxy)
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(channel.fileno(), reporter.handle_request, gone)
    await gone.wait()


class _Reporter:
    """Takes the supervisor's requests and reports changes to it. The supervisor treats these as
    hostile input, because the machine's programs talk to this process."""

    def __init__(
        self, channel: socket.socket, policy: EgressPolicy, counter: EgressCounter
    ) -> None:
        self._channel = channel
        self._reported_at = 0.0
        self._next_report: asyncio.TimerHandle | None = None
        self.proxy = EgressProxy(policy, SystemClock(), counter=counter, on_change=self._changed)

    def handle_request(self, gone: asyncio.Event) -> None:
        """A request sets the network, and is answered with everything known up to then."""
        try:
            packet = receive_now(self._channel)
        except OSError:
            packet = None
        if packet is None:
            gone.set()
            return
        request = packet.message
        rules = EgressRules.of(request["rules"])
        self.proxy.change(replace(self.proxy.policy, network=request["network"], rules=rules))
        self._report(answered=request["number"])

    def _changed(self, line: str | None) -> None:
        if line is not None:
            self._report(line=line)
        elif self._next_report is None:
            wait_sec = max(0.0, self._reported_at + _REPORT_SEC - time.monotonic())
            self._next_report = asyncio.get_running_loop().call_later(wait_sec, self._report)

    def _report(self, **more: Any) -> None:
        if self._next_report is not None:
            self._next_report.cancel()
        self._next_report = None
        self._reported_at = time.monotonic()
        proxy = self.proxy
        report = asdict(proxy.counter.report(proxy.policy.network))
        with suppress(OSError):  # the supervisor has gone: the next read ends this process
            message = {"report": report, "private_host": proxy.private_host, **more}
            send_now(self._channel, message)


class EgressServer:
    """Serves a proxy on a listener. A flood of connections has to wait."""

    def __init__(self, listener: socket.socket, proxy: EgressProxy) -> None:
        listener.settimeout(0)
        self._listener = listener
        self._proxy = proxy
        self._tasks: set[asyncio.Task[None]] = set()
        self._listen()

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
        loop.call_later(pause_sec, self._listen)

    async def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        try:
            streams = await asyncio.open_connection(sock=connection, limit=_BUFFER_BYTES)
        except OSError:
            connection.close()
            return
        await self._proxy(*streams)
