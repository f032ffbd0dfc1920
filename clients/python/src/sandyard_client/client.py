"""A connection to a server that runs flows, and generic API calls."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sandyard_client.calls import Calls
from sandyard_client.connection import Connection
from sandyard_client.retrying import RetryPolicy
from sandyard_client.steps import Flow
from sandyard_client.transport import AsyncTransport, SyncTransport
from sandyard_client.wire import Request

if TYPE_CHECKING:
    from sandyard_client.nouns import AsyncPlatform, Platform

T = TypeVar("T")


class StoppedError(Exception):
    """The flow was told to stop while it waited."""


class Client:
    """Keeps connections open; threads may share it. Close it, or use it in a `with` block."""

    def __init__(
        self,
        connection: Connection | None = None,
        *,
        retries: RetryPolicy | None = None,
        on_retry: Callable[[str], object] | None = None,
    ) -> None:
        """`on_retry` is called with the reason before a call is retried."""
        self.connection = connection or Connection.load()
        self.calls = Calls(retries or RetryPolicy(), on_retry=on_retry)
        self._transport = SyncTransport(self.connection)

    @cached_property
    def platform(self) -> "Platform":
        """The Platform's nouns: `client.platform.projects.create(name="shop")`."""
        from sandyard_client.nouns import Platform

        return Platform(self)

    def call(self, request: Request) -> Any:
        """The JSON of the response; ApiError if the server refuses."""
        return self.run(self.calls.json(request))

    def items(self, request: Request, key: str, *, limit: int | None = None) -> Iterator[Any]:
        """The items of a listing under `key`, page by page."""
        return self.iterate(self.calls.pages(request, key, limit=limit))

    def run(self, flow: Flow[T]) -> T:
        return self._transport.run(flow)

    def iterate(self, flow: Flow[Any]) -> Iterator[Any]:
        return self._transport.iterate(flow)

    def run_until(self, flow: Flow[None], stopping: threading.Event) -> None:
        """Run it, but only until its next wait once `stopping` is set."""

        def sleep(seconds: float) -> None:
            if stopping.wait(seconds):
                raise StoppedError

        try:
            self._transport.with_sleep(sleep).run(flow)
        except StoppedError:
            return

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient:
    """The same for asyncio."""

    def __init__(
        self,
        connection: Connection | None = None,
        *,
        retries: RetryPolicy | None = None,
        on_retry: Callable[[str], object] | None = None,
    ) -> None:
        self.connection = connection or Connection.load()
        self.calls = Calls(retries or RetryPolicy(), on_retry=on_retry)
        self._transport = AsyncTransport(self.connection)

    @cached_property
    def platform(self) -> "AsyncPlatform":
        from sandyard_client.nouns import AsyncPlatform

        return AsyncPlatform(self)

    async def call(self, request: Request) -> Any:
        return await self.run(self.calls.json(request))

    def items(self, request: Request, key: str, *, limit: int | None = None) -> AsyncIterator[Any]:
        return self.iterate(self.calls.pages(request, key, limit=limit))

    async def run(self, flow: Flow[T]) -> T:
        return await self._transport.run(flow)

    def iterate(self, flow: Flow[Any]) -> AsyncIterator[Any]:
        return self._transport.iterate(flow)

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.close()
