"""Circuit breakers whose state is in the engine: it survives restarts, and replicas share it."""

import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Protocol

from purgatory import AsyncInMemoryUnitOfWork
from purgatory.domain.model import Context
from purgatory.typing import StateName

from sandyard.kit.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class CircuitState:
    state: StateName = "closed"
    failures: int = 0
    """Consecutive failures, across all processes."""
    opened_at: float | None = None


class CircuitStore(Protocol):
    """Circuit states, stored beside the job leases. Each change returns the new state; raises
    UnavailableError when the engine is down."""

    async def find(self, circuit: str) -> CircuitState:
        """The last committed state; closed if there is none."""

    async def move(self, circuit: str, state: str, opened_at: float | None) -> CircuitState:
        """Open, half-open or close it."""

    async def count_failure(self, circuit: str) -> CircuitState: ...

    async def forget_failures(self, circuit: str) -> CircuitState: ...


class StoredCircuits(AsyncInMemoryUnitOfWork):
    """Circuit storage for a circuit breaker factory. Each call reads its circuit's state first;
    while the engine is down, this process uses its own view."""

    def __init__(self, store: CircuitStore, threshold: int, timeout_sec: float) -> None:
        self.contexts: Any = _Contexts(store, threshold, timeout_sec)


@dataclass(slots=True)
class _Seen:
    state: CircuitState
    """The stored state when last read."""
    context: Context


class _Contexts:
    """The repository of purgatory's unit of work.

    All calls of this process share a circuit's context, so that concurrent calls are counted
    together. It is rebuilt when another process has changed the stored state.
    """

    def __init__(self, store: CircuitStore, threshold: int, timeout_sec: float) -> None:
        self.messages: list[Any] = []
        self._store = store
        self._threshold = threshold
        self._timeout_sec = timeout_sec
        self._seen: dict[str, _Seen] = {}

    async def get(self, name: str) -> Context:
        try:
            stored = await self._store.find(name)
        except UnavailableError:
            stored = self._seen[name].state if name in self._seen else CircuitState()
        seen = self._seen.get(name)
        if seen is None or seen.state != stored:
            context = Context(
                name,
                self._threshold,
                self._timeout_sec,
                state=stored.state,
                failure_count=stored.failures,
                opened_at=stored.opened_at,
            )
            seen = self._seen[name] = _Seen(stored, context)
        return seen.context

    async def register(self, context: Context) -> None:
        """Nothing to do: `get` creates contexts on demand."""

    async def update_state(self, name: str, state: str, opened_at: float | None) -> None:
        await self._write(name, self._store.move(name, state, opened_at))

    async def inc_failures(self, name: str, failure_count: int) -> None:  # noqa: ARG002 - the store counts those of all processes
        await self._write(name, self._count_failure(name))

    async def reset_failure(self, name: str) -> None:
        await self._write(name, self._store.forget_failures(name))

    async def _count_failure(self, name: str) -> CircuitState:
        """A context knows other processes' failures only as of the start of its call."""
        counted = await self._store.count_failure(name)
        if counted.state == "closed" and counted.failures >= self._threshold:
            return await self._store.move(name, "opened", time.time())
        return counted

    async def _write(self, name: str, change: Awaitable[CircuitState]) -> None:
        try:
            self._seen[name].state = await change
        except UnavailableError:
            return  # the guarded call has completed; do not lose its result over this
