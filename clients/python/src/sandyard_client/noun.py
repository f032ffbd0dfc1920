"""What all nouns of the Platform do: calls of operations by name, sync and async."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from sandyard_client.calls import Calls
from sandyard_client.decoding import decode
from sandyard_client.operations import OMIT, listed, perform
from sandyard_client.steps import Flow

__all__ = ["OMIT", "AsyncNoun", "Noun"]

T = TypeVar("T")


class Runner(Protocol):
    """What a noun needs of its client."""

    calls: Calls

    def run(self, flow: Flow[T]) -> T: ...

    def iterate(self, flow: Flow[Any]) -> Iterator[Any]: ...


class AsyncRunner(Protocol):
    calls: Calls

    async def run(self, flow: Flow[T]) -> T: ...

    def iterate(self, flow: Flow[Any]) -> AsyncIterator[Any]: ...


class Noun:
    """Calls through one client; `bound` are fields of all of them, such as `sandbox_id`."""

    def __init__(self, client: Runner, **bound: str) -> None:
        self._client = client
        self._bound = bound

    def _send(self, operation: str, values: Mapping[str, Any], key: str | None = None) -> Any:
        return self._client.run(
            perform(self._client.calls, operation, {**self._bound, **values}, key)
        )

    def _call(
        self, model: type[T], operation: str, values: Mapping[str, Any], key: str | None = None
    ) -> T:
        return decode(model, self._send(operation, values, key))

    def _items(
        self, model: type[T], operation: str, values: Mapping[str, Any], limit: int | None
    ) -> Iterator[T]:
        flow = listed(self._client.calls, operation, {**self._bound, **values}, limit)
        return (decode(model, each) for each in self._client.iterate(flow))


class AsyncNoun:
    """The same for asyncio."""

    def __init__(self, client: AsyncRunner, **bound: str) -> None:
        self._client = client
        self._bound = bound

    async def _send(self, operation: str, values: Mapping[str, Any], key: str | None = None) -> Any:
        flow = perform(self._client.calls, operation, {**self._bound, **values}, key)
        return await self._client.run(flow)

    async def _call(
        self, model: type[T], operation: str, values: Mapping[str, Any], key: str | None = None
    ) -> T:
        return decode(model, await self._send(operation, values, key))

    async def _items(
        self, model: type[T], operation: str, values: Mapping[str, Any], limit: int | None
    ) -> AsyncIterator[T]:
        flow = listed(self._client.calls, operation, {**self._bound, **values}, limit)
        async for each in self._client.iterate(flow):
            yield decode(model, each)
