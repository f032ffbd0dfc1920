"""The egress proxy, the only way out of a machine: tunnels by CONNECT, and plain HTTP.

It checks the name, resolves it, checks every address and connects to a checked one, in that order;
so neither a redirect nor a name that changes its address in between leads anywhere else. A plain
request has its own connection to the host, for one request only, so that requests can't be mixed
up.
"""

import asyncio
import re
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from sandyard.kit.clock import Clock
from sandyard.kit.public_addresses import may_connect, networks_of
from sandyard.runtime.local.egress.http_heads import (
    MOST_HEAD_BYTES,
    BadRequestError,
    ProxyRequest,
    closing_answer,
    parse_request,
)
from sandyard.runtime.network_model import (
    DENIED,
    NO_RULES,
    PRIVATE,
    EgressCounter,
    EgressPolicy,
    refusal_line,
)

MOST_CONNECTIONS = 256
_HEAD_SEC = 10.0
_CONNECT_SEC = 10.0
_IDLE_SEC = 600.0
_AT_ONCE = 8

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_CHUNK_BYTES = 64 * 1024
_INTERIM = re.compile(rb"HTTP/1\.[01] 1\d\d ")


class Resolver(Protocol):
    async def addresses(self, host: str, port: int) -> list[str]:
        """All current addresses of the name. Raises OSError."""


class EgressProxy:
    """Handles one connection per call. `on_change` is called when there is news, with the line of a
    refusal not reported before."""

    def __init__(
        self,
        policy: EgressPolicy,
        clock: Clock,
        *,
        counter: EgressCounter | None = None,
        on_change: Callable[[str | None], None] = lambda _line: None,
        resolver: Resolver | None = None,
        head_sec: float = _HEAD_SEC,
    ) -> None:
        self.policy = policy
        self._clock = clock
        self.counter = counter or EgressCounter()
        self.private_host: str | None = None
        """The last host that was refused because its address is private."""
        self._on_change = on_change
        self._head_sec = head_sec
        self._resolver: Resolver = resolver or NameResolver()
        self._open: dict[asyncio.Task[None], ProxyRequest | None] = {}

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._open) >= MOST_CONNECTIONS:
            _answer(writer, 503, "too many connections at once")
            return
        self._open[task] = None
        try:
            await self._serve(reader, writer, task)
        except OSError:
            return  # the client disconnected
        finally:
            del self._open[task]
            writer.close()

    def change(self, policy: EgressPolicy) -> None:
        """Apply this policy from now on and close the connections that it does not allow. New rules
        for addresses close all connections: permitted clients reconnect."""
        is_ruled = policy.rules not in (NO_RULES, self.policy.rules)
        self.policy = policy
        for task, request in self._open.items():
            if request is None:
                continue
            if is_ruled or policy.refusal(request.host, request.port) is not None:
                task.cancel()

    def close(self) -> None:
        for task in self._open:
            task.cancel()

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: "asyncio.Task[None]",
    ) -> None:
        try:
            request = self._open[task] = await self._read(reader)
            far = await self._connect(request)
        except BadRequestError as error:
            _answer(writer, error.status, str(error))
        else:
            await self._relay((reader, writer), far, request)

    async def _read(self, reader: asyncio.StreamReader) -> ProxyRequest:
        try:
            async with asyncio.timeout(self._head_sec):
                return await _read_request(reader)
        except TimeoutError:
            raise BadRequestError("the request did not arrive in time", 408) from None

    async def _relay(self, near: Streams, far: Streams, request: ProxyRequest) -> None:
        self.counter.connections += 1
        if request.head is None:
            near[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            far[1].write(request.head)
            self._sent(len(request.head))
        try:
            await relay(
                near,
                far,
                idle_sec=_IDLE_SEC,
                on_sent=self._sent,
                on_received=self._received,
                request_bytes=None if request.head is None else request.body_bytes,
                change_head=closing_answer,
            )
        finally:
            self._on_change(None)

    async def _connect(self, request: ProxyRequest) -> Streams:
        """Raises BadRequestError if it is refused or can't be reached."""
        host, port = request.host, request.port
        if (reason := self.policy.refusal(host, port)) is not None:
            raise self._refused(request, reason)
        try:
            async with asyncio.timeout(_CONNECT_SEC):
                addresses = await self._resolver.addresses(host, port)
            permitted = self._permitted(request, addresses)
            allowed = networks_of(self.policy.allowed_networks)
            if all(may_connect(address, allowed=allowed) for address in addresses):
                return await _connect_to_first(permitted, port)
        except (OSError, TimeoutError) as error:
            reason = str(error) or "it took too long"
            raise BadRequestError(f"{host} could not be reached: {reason}", 502) from error
        self.private_host = host
        raise self._refused(request, PRIVATE)

    def _permitted(self, request: ProxyRequest, addresses: list[str]) -> list[str]:
        """The addresses that the rules allow. Raises BadRequestError if they allow none."""
        reasons = {each: self.policy.refusal_of_address(request.host, each) for each in addresses}
        permitted = [each for each, reason in reasons.items() if reason is None]
        if addresses and not permitted:
            raise self._refused(request, next(iter(reasons.values())) or DENIED)
        return permitted

    def _refused(self, request: ProxyRequest, reason: str) -> BadRequestError:
        host, port = request.host, request.port
        is_new = self.counter.refuse(host, port, reason, at=self._clock.now())
        self._on_change(refusal_line(host, reason) if is_new else None)
        return BadRequestError(refusal_line(host, reason), 403)

    def _sent(self, length: int) -> None:
        self.counter.bytes_sent += length

    def _received(self, length: int) -> None:
        self.counter.bytes_received += length


async def _read_request(reader: asyncio.StreamReader) -> ProxyRequest:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        raise BadRequestError("the request was interrupted") from None
    except asyncio.LimitOverrunError:
        raise BadRequestError("the head of the request is too large", 431) from None
    if len(head) > MOST_HEAD_BYTES:
        raise BadRequestError("the head of the request is too large", 431)
    return parse_request(head)


async def _connect_to_first(addresses: list[str], port: int) -> Streams:
    """Connect to the first checked address that answers, without resolving again."""
    failure: OSError | TimeoutError = OSError("it has no address")
    for address in addresses:
        try:
            async with asyncio.timeout(_CONNECT_SEC):
                return await asyncio.open_connection(address, port)
        except (OSError, TimeoutError) as error:
            failure = error
    raise failure


def _answer(writer: asyncio.StreamWriter, status: int, message: str) -> None:
    """The reason is in the status line too, because pip, npm and curl show that."""
    plain = "".join(letter if " " <= letter <= "~" else "?" for letter in message)
    body = f"{plain}\n".encode()
    head = (
        f"HTTP/1.1 {status} {plain}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    writer.close()


class NameResolver:
    """At most a few at once; one that never ends keeps its slot, but nothing waits for it."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Raises OSError."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()

        def tell(result: list[str] | OSError) -> None:
            self._places.release()
            if found.done():
                return
            if isinstance(result, OSError):
                found.set_exception(result)
            else:
                found.set_result(result)

        def look_up() -> None:
            result = _look_up(host, port)
            try:
                loop.call_soon_threadsafe(tell, result)
            except RuntimeError:
                return  # the loop has ended

        threading.Thread(target=look_up, daemon=True).start()
        return await found


def _look_up(host: str, port: int) -> list[str] | OSError:
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return error if isinstance(error, OSError) else OSError(str(error))
    return list(dict.fromkeys(str(entry[4][0]).split("%")[0] for entry in entries))


async def relay(
    near: Streams,
    far: Streams,
    *,
    idle_sec: float,
    on_sent: Callable[[int], None],
    on_received: Callable[[int], None],
    request_bytes: int | None = None,
    change_head: Callable[[bytes], bytes] = bytes,
) -> None:
    """Copy bytes both ways until both sides have closed, or nothing came for `idle_sec`. With
    `request_bytes`, no more than that is sent to the far side, and the connection ends with its
    answer, whose head is changed."""
    out = asyncio.ensure_future(_copy(near[0], far[1], idle_sec, on_sent, request_bytes))
    if request_bytes is None:
        back = asyncio.ensure_future(_copy(far[0], near[1], idle_sec, on_received, None))
    else:
        back = asyncio.ensure_future(
            _copy_answer(far[0], near[1], idle_sec, on_received, change_head)
        )
    try:
        await (asyncio.gather(out, back) if request_bytes is None else back)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # one side is gone, and so is the connection
    finally:
        out.cancel()
        back.cancel()
        await asyncio.gather(out, back, return_exceptions=True)
        near[1].close()
        far[1].close()


async def _copy_answer(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    idle_sec: float,
    on_bytes: Callable[[int], None],
    change_head: Callable[[bytes], bytes],
) -> None:
    is_over = False
    while not is_over:
        async with asyncio.timeout(idle_sec):
            head = await source.readuntil(b"\r\n\r\n")
        on_bytes(len(head))
        is_over = not _INTERIM.match(head)
        sink.write(change_head(head) if is_over else head)
    await _copy(source, sink, idle_sec, on_bytes, None)


async def _copy(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    idle_sec: float,
    on_bytes: Callable[[int], None],
    most: int | None,
) -> None:
    left = most
    while left is None or left > 0:
        async with asyncio.timeout(idle_sec):
            chunk = await source.read(_CHUNK_BYTES if left is None else min(left, _CHUNK_BYTES))
            if not chunk:
                break
            sink.write(chunk)
            on_bytes(len(chunk))
            await sink.drain()
        left = None if left is None else left - len(chunk)
    if most is None and sink.can_write_eof():
        sink.write_eof()
