"""Claims sent at times fixed in advance, whether or not earlier ones were answered.

Run as `python -m benchmarks.open_loop_client` with the options as JSON on stdin; the outcome is
JSON on stdout. It is a process of its own so that it shares no interpreter with what it measures.
A latency runs from the moment at which the claim was due, so time in a queue here counts as well.
"""

import asyncio
import gc
import json
import sys
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from statistics import fmean, quantiles

_LEAD_SEC = 0.2
_PATIENCE_SEC = 20


@dataclass(frozen=True, slots=True)
class Offer:
    port: int
    token: str
    label: str
    """Begins every track id, so that no two runs share a lease."""
    rate: int
    count: int
    tracks: int
    connections: int


@dataclass(frozen=True, slots=True)
class Outcome:
    mean_ms: float
    p99_ms: float
    statuses: dict[str, int] = field(default_factory=dict)


class Generator:
    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._free: list[_Connection] = []
        self._waiting: deque[tuple[bytes, float]] = deque()
        self._latencies: list[float] = []
        self._statuses: Counter[str] = Counter()
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> Outcome:
        offer = self._offer
        loop = asyncio.get_running_loop()
        for _ in range(offer.connections):
            _, connection = await loop.create_connection(
                lambda: _Connection(self), "127.0.0.1", offer.port
            )
            self._free.append(connection)
        async with asyncio.timeout(offer.count / offer.rate + _PATIENCE_SEC):
            await self._send_on_time()
            await self._finished
        percentiles = quantiles(self._latencies, n=100, method="inclusive")
        return Outcome(fmean(self._latencies) * 1000, percentiles[98] * 1000, dict(self._statuses))

    async def _send_on_time(self) -> None:
        start = time.perf_counter() + _LEAD_SEC
        for number in range(self._offer.count):
            due = start + number / self._offer.rate
            while (early := due - time.perf_counter()) > 0:  # noqa: ASYNC110 - the clock decides
                await asyncio.sleep(early)
            request = self._request(number)
            if self._free:
                self._free.pop().send(request, due)
            else:
                self._waiting.append((request, due))

    def _request(self, number: int) -> bytes:
        offer = self._offer
        track, key = number % offer.tracks, number // offer.tracks
        return (
            f"POST /v1/allocate HTTP/1.1\r\nHost: 127.0.0.1:{offer.port}\r\n"
            f"Authorization: Bearer {offer.token}\r\nContent-Length: 0\r\n"
            f"X-Track-ID: {offer.label}-{track}\r\nIdempotency-Key: {key}\r\n\r\n"
        ).encode()

    def answered(self, connection: "_Connection", status: str, seconds: float) -> None:
        self._latencies.append(seconds)
        self._statuses[status] += 1
        if self._waiting:
            connection.send(*self._waiting.popleft())
        else:
            self._free.append(connection)
        if len(self._latencies) == self._offer.count:
            self._finished.set_result(None)

    def lost(self) -> None:
        if not self._finished.done():
            self._finished.set_exception(ConnectionError("the server closed a connection"))


class _Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request under way."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._received = b""
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a TCP connection is one
        self._transport = transport

    def send(self, request: bytes, due: float) -> None:
        self._due = due
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end or len(body) < _content_length(head):
            return
        self._received = b""
        self._generator.answered(self, head[9:12].decode(), time.perf_counter() - self._due)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - any loss is one
        self._generator.lost()


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    raise ValueError("an answer without a Content-Length")


async def _run(offer: Offer) -> Outcome:
    return await Generator(offer).run()


if __name__ == "__main__":
    gc.disable()  # its pauses would be counted as the server's
    print(json.dumps(asdict(asyncio.run(_run(Offer(**json.load(sys.stdin)))))))
