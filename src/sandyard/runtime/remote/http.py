"""HTTP calls to one service or machine, with its backoff; what fails is a CallError."""

import asyncio
import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from sandyard.runtime.remote.backoff import Backoff, SandboxBackoffs
from sandyard.runtime.remote.errors import CallError, Trouble

if TYPE_CHECKING:
    from ssl import SSLContext

    from aiohttp import ClientResponse, ClientSession

T = TypeVar("T")
_PATIENCE_SEC = 10.0
"""The longest wait before a call may be sent, however long the call itself may take."""
_LONGEST_RETRY_AFTER_SEC = 86400
_PIECE_BYTES = 1 << 18
_MOST_BYTES = 64 * 2**20
"""The largest response that is read as a whole: a machine's own server may be its tenant's."""
_QUICK_BYTES = 64 * 1024
_NOT_THERE = "The sandbox was not found"
"""The proxy in front of a machine says so while it can't find it; that is not a refusal."""
_STATUSES: Mapping[int, Trouble] = {
    401: "key_refused",
    403: "key_refused",
    404: "not_found",
    429: "rate_limited",
    507: "other",
}
_CODES: Mapping[str, Trouble] = {
    "canceled": "timeout",
    "deadline_exceeded": "timeout",
    "not_found": "not_found",
    "resource_exhausted": "rate_limited",
    "unauthenticated": "key_refused",
    "unavailable": "unreachable",
}
"""Connect's codes, with which a machine's own server responds."""


class HttpPool:
    """The connections to one service with one key, and its backoff: shared by all its callers."""

    def __init__(self, backoff: Backoff) -> None:
        self.backoff = backoff
        self.sandbox_backoffs = SandboxBackoffs(backoff)

    @cached_property
    def session(self) -> "ClientSession":
        """Made at the first call: it belongs to the event loop, and its import is slow."""
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

        return ClientSession(
            connector=TCPConnector(limit=0),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=None),
            trust_env=True,
        )

    async def close(self) -> None:
        if "session" in self.__dict__:
            await self.session.close()


@dataclass(frozen=True, slots=True)
class Reply:
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)


class HttpCaller:
    def __init__(
        self,
        pool: HttpPool,
        url: str,
        headers: Mapping[str, str],
        backoff: Backoff,
        *,
        json_statuses: Collection[int] = (),
        tls: "SSLContext | None" = None,
    ) -> None:
        """`json_statuses` are those that the service only sends with JSON: a response without it
        comes from something else, and says nothing."""
        self._pool = pool
        self._url = url.rstrip("/")
        self._headers = dict(headers)
        self._backoff = backoff
        self._json_statuses = json_statuses
        self._more: dict[str, Any] = {} if tls is None else {"ssl": tls}

    async def call(
        self, method: str, path: str, *, within_sec: float | None, **request: Any
    ) -> Reply:
        """The complete response. The request is sent once. With None, there is no time limit."""
        async with self._sent(method, path, within_sec=within_sec, **request) as response:
            with translated():
                async with asyncio.timeout(within_sec):
                    return Reply(response.headers, await _content_of(response))

    async def stream(
        self, method: str, path: str, *, within_sec: float | None, **request: Any
    ) -> AsyncGenerator[bytes]:
        """The content of the response as it arrives; it begins within the time."""
        async with self._sent(method, path, within_sec=within_sec, **request) as response:
            with translated():
                while piece := await response.content.read(_PIECE_BYTES):
                    yield piece

    @asynccontextmanager
    async def _sent(
        self,
        method: str,
        path: str,
        *,
        within_sec: float | None,
        headers: Mapping[str, str] | None = None,
        **request: Any,
    ) -> "AsyncIterator[ClientResponse]":
        await self._backoff.wait(within_sec=min(within_sec or _PATIENCE_SEC, _PATIENCE_SEC))
        sent_at = self._backoff.sending_at()
        headers, request = self._headers | dict(headers or {}), self._more | request
        try:
            with translated():
                async with asyncio.timeout(within_sec):
                    response = await self._pool.session.request(
                        method, self._url + path, headers=headers, allow_redirects=False, **request
                    )
                    if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
                        async with response:
                            raise await _failure(response, self._json_statuses)
        except CallError as error:
            if error.refusal is not None:
                wait_sec = error.named_retry_after
                self._backoff.refused(error.refusal, retry_after=wait_sec, sent_at=sent_at)
            raise
        self._backoff.answered()
        async with response:
            yield response


async def _content_of(response: "ClientResponse") -> bytes:
    pieces, size = list[bytes](), 0
    while piece := await response.content.read(_PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > _MOST_BYTES:
            raise CallError("failed", "the response is too large", status=response.status)
    return b"".join(pieces)


async def parsed(content: bytes) -> Any:
    """The JSON; a large one is parsed in a thread. Raises ValueError."""
    if len(content) <= _QUICK_BYTES:
        return json.loads(content)
    return await asyncio.to_thread(json.loads, content)


async def repeated(call: Callable[[], Awaitable[T]], *, repeats: int) -> T:
    """Repeat an idempotent call after a 429 or 5xx, after the backoff."""
    for _ in range(repeats):
        try:
            return await call()
        except CallError as error:
            if error.refusal is None or not error.was_sent:
                raise
    return await call()


@contextmanager
def translated() -> Iterator[None]:
    """Raise failures of the connection as CallError."""
    from aiohttp import ClientError

    try:
        yield
    except TimeoutError as error:
        raise CallError("timeout", f"no response in time: {error}") from error
    except ClientError as error:
        raise CallError("unreachable", f"{type(error).__name__}: {error}") from error


@contextmanager
def parsing() -> Iterator[None]:
    """A malformed response is no response."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CallError("failed", f"no response: {error!r}") from error


def error_of(body: Mapping[str, Any], *, status: int | None = None) -> CallError:
    """The error that a machine's own server responded with."""
    code, message = str(body.get("code")), str(body.get("message", ""))[:300]
    return CallError(_CODES.get(code, "other"), f"{code}: {message}", status=status, code=code)


async def _failure(response: "ClientResponse", json_statuses: Collection[int]) -> CallError:
    status, content = response.status, await _content_of(response)
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if isinstance(body, dict) and isinstance(body.get("code"), str):
        return error_of(body, status=status)
    message = str(body.get("message", "")) if isinstance(body, dict) else content.decode("latin-1")
    trouble = _STATUSES.get(status) or ("failed" if status >= 500 else "other")
    if status == HTTPStatus.BAD_GATEWAY and _NOT_THERE in message:
        trouble = "unreachable"
    if body is None and status in json_statuses:
        trouble = "other"
    return CallError(
        trouble,
        f"{status}: {message[:300]}",
        status=status,
        retry_after=_retry_after(response.headers.get("Retry-After", "")),
    )


def _retry_after(text: str) -> int | None:
    seconds = int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else None
    return seconds if seconds is None or seconds <= _LONGEST_RETRY_AFTER_SEC else None
