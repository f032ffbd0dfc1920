"""The use cases that every noun has: list, get and change entities of an account."""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Generic, TypeVar

from sandyard.kit.changes.transitions import Cause, E, Transition
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.kit.errors import NotFoundError
from sandyard.kit.idempotency import is_repeat, new_id
from sandyard.kit.ids import is_resource_id
from sandyard.kit.paging import Page
from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.apply import OwnedStore, apply_decided, change
from sandyard.platform.entities.model import Listing

S = TypeVar("S", bound=OwnedStore[Any])


class OwnedEntities(Generic[E, S]):
    """Every use case is limited to what the given account may see; the rest is not found. Each
    reads the clock once."""

    id_prefix: ClassVar[str]
    not_found: ClassVar[type[NotFoundError]]

    def __init__(self, store: S, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._locks = KeyedLocks()

    async def list(self, account_id: str, listing: Listing[Any]) -> Page[E]:
        return await self._store.page(account_id, listing)

    async def find(self, account_id: str, entity_id: str) -> E | None:
        if not is_resource_id(self.id_prefix, entity_id):
            return None
        found: E | None = await self._store.find(account_id, entity_id)
        return found

    async def get(self, account_id: str, entity_id: str) -> E:
        found = await self.find(account_id, entity_id)
        if found is None:
            raise self.not_found
        return found

    async def _change(
        self,
        principal: Principal,
        entity_id: str,
        decide: Callable[[E, Cause], Transition[E] | None],
    ) -> E:
        cause = self._cause(principal)
        return await change(
            self._store,
            lambda: self.get(principal.account_id, entity_id),
            lambda entity: decide(entity, cause),
            lock=self._locks.of(entity_id),
        )

    async def _create(
        self,
        principal: Principal,
        decide: Callable[[str], Awaitable[Transition[E]]],
        entity_id: str | None = None,
    ) -> E:
        """What is decided for this id, or a new one; or what an interrupted call with the same key
        has made."""
        entity_id = entity_id or new_id(self.id_prefix)
        if is_repeat() and (made := await self.find(principal.account_id, entity_id)):
            return made
        return await self._apply(lambda: decide(entity_id))

    async def _apply(self, decide: Callable[[], Awaitable[Transition[E]]]) -> E:
        return (await apply_decided(self._store, decide)).result

    def _cause(self, principal: Principal) -> Cause:
        return Cause.by(principal.actor, self._clock)
