"""How use cases change something: read, decide, apply, and again if somebody else was faster."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from sandyard.kit.errors import UnavailableError
from sandyard.kit.events import Event
from sandyard.kit.transitions import E, Transition, settle


class BusyError(UnavailableError):
    """Others are changing this at the same time. Nothing was changed; try again shortly."""

    code = "PLATFORM_BUSY"


class TransitionStore(Protocol):
    async def apply(
        self, *transitions: Transition[Any], extra_events: Sequence[Event] = ()
    ) -> bool:
        """All of them with their events, or nothing and False if something is not any more what
        it was decided from."""
        ...


async def change(
    store: TransitionStore,
    find: Callable[[], Awaitable[E]],
    decide: Callable[[E], Transition[E] | None],
    *,
    lock: asyncio.Lock,
) -> E:
    """The entity as it is then. Those who share the lock go one after another."""
    return await settle(
        find,
        lambda entity: None if entity is None else decide(entity),
        store.apply,
        lock=lock,
        busy=BusyError,
    )
