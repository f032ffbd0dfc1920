"""How use cases change an entity: read, decide, apply, and retry on a conflict."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import E, Transition, apply_decision, change_entity
from sandyard.kit.errors import UnavailableError
from sandyard.kit.paging import Page
from sandyard.platform.entities.model import Listing

Fact = TypeVar("Fact")


class BusyError(UnavailableError):
    """Others are changing this at the same time. Nothing was changed; try again shortly."""

    code = "PLATFORM_BUSY"


class AppliesTransitions(Protocol):
    async def apply(self, *transitions: Transition[Any]) -> bool: ...


class TransitionStore(Protocol):
    async def apply(
        self, *transitions: Transition[Any], extra_events: Sequence[Event] = ()
    ) -> bool:
        """Apply all of them with their events; or nothing and return False, if something has
        changed since it was read."""

    async def read_fact(self, about: Fact) -> Fact:
        """The current fact; `about` only identifies it."""


class OwnedStore(TransitionStore, Protocol[E]):
    """Only entities that the account may see, and no deleted ones."""

    async def find(self, account_id: str, entity_id: str, /) -> E | None: ...

    async def page(self, account_id: str, listing: Listing[Any], /) -> Page[E]: ...


async def apply_decided(
    store: AppliesTransitions, decide: Callable[[], Awaitable[Transition[E]]]
) -> Transition[E]:
    """Decide on one transition and apply it; decide again after a concurrent change."""
    return await apply_decision(decide, store.apply, busy=BusyError)


async def apply_all(
    store: AppliesTransitions,
    decide: Callable[[], Awaitable[Sequence[Transition[Any]]]],
    *,
    retried: tuple[type[Exception], ...] = (),
) -> Sequence[Transition[Any]]:
    """Decide on transitions and apply them together; decide again after a concurrent change, or
    after one of the `retried` errors. Returns what was applied."""

    async def apply(transitions: Sequence[Transition[Any]]) -> bool:
        try:
            return await store.apply(*transitions)
        except retried:
            return False

    applied: Sequence[Transition[Any]] = await apply_decision(decide, apply, busy=BusyError)
    return applied


async def change(
    store: AppliesTransitions,
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
