"""How use cases change an entity: read, decide, apply, and retry on a conflict."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import E, Transition, change_entity
from sandyard.kit.errors import UnavailableError


class BusyError(UnavailableError):
    """Others are changing this at the same time. Nothing was changed; try again shortly."""

    code = "PLATFORM_BUSY"


class TransitionStore(Protocol):
    async def apply(
        self, *transitions: Transition[Any], extra_events: Sequence[Event] = ()
    ) -> bool:
        """Apply all of them with their events; or nothing and return False, if something has
        changed since it was read."""
        ...


async def change(
    store: TransitionStore,
    find: Callable[[], Awaitable[E]],
    decide: Callable[[E], Transition[E] | None],
    *,
    lock: asyncio.Lock,
) -> E:
    """The entity after the change. Callers that share the lock run one at a time."""
    return await change_entity(
        find,
        lambda entity: None if entity is None else decide(entity),
        store.apply,
        lock=lock,
        busy=BusyError,
    )
