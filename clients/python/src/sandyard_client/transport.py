"""The two drivers of flows, over httpx: a blocking one, and one for asyncio."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import Any, TypeVar

import httpx

from sandyard_client.connection import Connection
from sandyard_client.errors import ConfigurationError
from sandyard_client.steps import (
    Done,
    Emit,
    Flow,
    Open,
    Read,
    Send,
    Sleep,
    Step,
    Stream,
    Work,
    advance,
)
from sandyard_client.wire import Answer, Content, Lost, Request

T = TypeVar("T")

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class SyncTransport:
    """Runs flows in the calling thread; several threads may share it."""

    def __init__(self, connection: Connection, *, sleep: Callable[[float], None] = time.sleep):
        self._connection = connection
        self._sleep = sleep
        self._client = httpx.Client(timeout=connection.timeout_sec, verify=connection.verify)

    def with_sleep(self, sleep: Callable[[float], None]) -> "SyncTransport":
        """The same connections, with a different sleep function."""
        other = object.__new__(SyncTransport)
        other._connection, other._client, other._sleep = self._connection, self._client, sleep
        return other

    def close(self) -> None:
        self._client.close()

    def run(self, flow: Flow[T]) -> T:
        driven = self.iterate(flow)
        while True:
            try:
                next(driven)
            except StopIteration as end:
                result: T = end.value
                return result

    def iterate(self, flow: Flow[T]) -> Generator[Any, None, T]:
        """The values that the flow emits."""
        with ExitStack() as streams:
            step = advance(flow)
            while not isinstance(step, Done):
                if isinstance(step, Emit):
                    yield step.value
                    step = advance(flow)
                    continue
                try:
                    step = advance(flow, self._do(step, streams))
                except BaseException as error:
                    # Also an interrupt between two steps; a flow that has ended raises it
                    # unchanged.
                    step = advance(flow, error=error)
            return step.value

    def _do(self, step: Step, streams: ExitStack) -> Any:
        match step:
            case Send(request):
                return self._send(request)
            case Open(request):
                return self._open(request, streams)
            case Read(stream):
                return _next_piece(stream.handle)
            case Sleep(seconds):
                return self._sleep(seconds)
            case Work(function):
                return function()
        raise AssertionError(step)

    def _send(self, request: Request) -> Answer | Lost:
        try:
            return _answer(self._client.send(self._built(request)))
        except httpx.TransportError as error:
            return _lost(error)

    def _open(self, request: Request, streams: ExitStack) -> Stream | Answer | Lost:
        try:
            response = self._client.send(self._built(request), stream=True)
            streams.callback(response.close)
            if response.is_success:
                return Stream(_head(response), response.iter_bytes())
            response.read()
        except httpx.TransportError as error:
            return _lost(error)
        return _answer(response)

    def _built(self, request: Request) -> httpx.Request:
        content = request.content() if request.content else None
        return _build(self._client, self._connection, request, content)


class AsyncTransport:
    """Runs flows in the event loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client = httpx.AsyncClient(timeout=connection.timeout_sec, verify=connection.verify)

    async def close(self) -> None:
        await self._client.aclose()

    async def run(self, flow: Flow[T]) -> T:
        async with AsyncExitStack() as streams:
            step = advance(flow)
            while not isinstance(step, Done):
                step = await self._next(flow, step, streams)
            return step.value

    async def iterate(self, flow: Flow[Any]) -> AsyncIterator[Any]:
        """The values that the flow emits."""
        async with AsyncExitStack() as streams:
            step = advance(flow)
            while not isinstance(step, Done):
                if isinstance(step, Emit):
                    yield step.value
                step = await self._next(flow, step, streams)

    async def _next(self, flow: Flow[T], step: Step, streams: AsyncExitStack) -> Step | Done[T]:
        try:
            result = await self._do(step, streams)
        except BaseException as error:
            return advance(flow, error=error)
        return advance(flow, result)

    async def _do(self, step: Step, streams: AsyncExitStack) -> Any:
        match step:
            case Send(request):
                return await self._send(request)
            case Open(request):
                return await self._open(request, streams)
            case Read(stream):
                return await _next_piece_async(stream.handle)
            case Sleep(seconds):
                return await asyncio.sleep(seconds)
            case Work(function):
                return await asyncio.to_thread(function)
            case Emit():
                return None

    async def _send(self, request: Request) -> Answer | Lost:
        try:
            return _answer(await self._client.send(self._built(request)))
        except httpx.TransportError as error:
            return _lost(error)

    async def _open(self, request: Request, streams: AsyncExitStack) -> Stream | Answer | Lost:
        try:
            response = await self._client.send(self._built(request), stream=True)
            streams.push_async_callback(response.aclose)
            if response.is_success:
                return Stream(_head(response), response.aiter_bytes())
            await response.aread()
        except httpx.TransportError as error:
            return _lost(error)
        return _answer(response)

    def _built(self, request: Request) -> httpx.Request:
        content = _without_blocking(request.content) if request.content else None
        return _build(self._client, self._connection, request, content)


async def _without_blocking(content: Content) -> AsyncIterator[bytes]:
    pieces = content()
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece


def _build(
    client: httpx.Client | httpx.AsyncClient,
    connection: Connection,
    request: Request,
    content: Any,
) -> httpx.Request:
    headers = {**connection.headers_for(request.credential), **request.headers}
    _require_one_line(headers)
    if content is not None and request.size is not None:
        headers["Content-Length"] = str(request.size)
    return client.build_request(
        request.method,
        connection.url + request.path,
        params={name: _text(value) for name, value in request.query.items() if value is not None},
        headers=[(name.encode(), value.encode()) for name, value in headers.items()],
        json=request.json,
        content=content,
        timeout=httpx.USE_CLIENT_DEFAULT if request.timeout_sec is None else request.timeout_sec,
    )


def _require_one_line(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if any(char < " " or char == "\x7f" for char in value):
            raise ConfigurationError(f"{name}: must not have line breaks or control characters")


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _head(response: httpx.Response) -> Answer:
    return Answer(response.status_code, {k.lower(): v for k, v in response.headers.items()})


def _answer(response: httpx.Response) -> Answer:
    head = _head(response)
    return Answer(head.status, head.headers, response.content)


def _lost(error: httpx.TransportError) -> Lost:
    reason = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
    where = f"{error.request.url.scheme}://{error.request.url.netloc.decode()}"
    return Lost(f"{reason} ({where})", was_sent=not isinstance(error, _NEVER_SENT))


def _next_piece(pieces: Iterator[bytes]) -> bytes | Lost | None:
    try:
        return next(pieces, None)
    except httpx.TransportError as error:
        return _lost(error)


async def _next_piece_async(pieces: AsyncIterator[bytes]) -> bytes | Lost | None:
    try:
        return await anext(pieces, None)
    except httpx.TransportError as error:
        return _lost(error)
