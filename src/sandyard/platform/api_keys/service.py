"""The use cases of API keys. Each reads the clock once."""

from collections.abc import Callable

from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.keyed_locks import KeyedLocks
from sandyard.kit.ids import account_api_key, e2b_api_key, is_resource_id, resource_id
from sandyard.kit.paging import Page
from sandyard.platform.access.principal import Principal
from sandyard.platform.api_keys.errors import KeyNotFoundError
from sandyard.platform.api_keys.model import (
    AccountKey,
    KeyChanges,
    KeyFilter,
    KeyFormat,
    NewKey,
    activate_key,
    create_key,
    deactivate_key,
    new_key_notice,
    revoke_key,
    update_key,
)
from sandyard.platform.api_keys.ports import KeyStore
from sandyard.platform.changes.apply import change
from sandyard.platform.listings.model import Listing
from sandyard.platform.notifications.model import create_notification

_MAKE = {KeyFormat.SANDYARD: account_api_key, KeyFormat.E2B: e2b_api_key}


class AccountKeys:
    """Every use case is limited to the given account's keys; others are not found."""

    def __init__(self, store: KeyStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._locks = KeyedLocks()

    async def create(self, principal: Principal, new: NewKey) -> tuple[AccountKey, str]:
        """The key's row and the key itself, which can't be shown again; KeyNameTakenError,
        KeyMakesNoKeysError, ExpiryPassedError."""
        cause = Cause.by(principal.actor, self._clock)
        api_key = _MAKE[new.format]()
        made = create_key(
            new, key_id=resource_id("key"), api_key=api_key, by=principal, cause=cause
        )
        notification = create_notification(
            new_key_notice(made.result),
            notification_id=resource_id("not"),
            account_id=principal.account_id,
            cause=cause,
        )
        await self._store.apply(made, notification)
        return made.result, api_key

    async def list(self, account_id: str, listing: Listing[KeyFilter]) -> Page[AccountKey]:
        return await self._store.page_of_keys(account_id, listing)

    async def get(self, account_id: str, key_id: str) -> AccountKey:
        known = is_resource_id("key", key_id)
        key = await self._store.find_key(account_id, key_id) if known else None
        if key is None:
            raise KeyNotFoundError
        return key

    async def update(self, principal: Principal, key_id: str, changes: KeyChanges) -> AccountKey:
        """Change the given fields; KeyNameTakenError."""
        return await self._change(
            principal, key_id, lambda key, cause: update_key(key, changes, cause)
        )

    async def activate(self, principal: Principal, key_id: str) -> AccountKey:
        return await self._change(principal, key_id, activate_key)

    async def deactivate(self, principal: Principal, key_id: str) -> AccountKey:
        """The key is invalid until it is activated again."""
        return await self._change(principal, key_id, deactivate_key)

    async def delete(self, principal: Principal, key_id: str) -> None:
        """The key is invalid from the next request on."""
        await self._change(principal, key_id, revoke_key)

    async def _change(
        self,
        principal: Principal,
        key_id: str,
        decide: Callable[[AccountKey, Cause], Transition[AccountKey] | None],
    ) -> AccountKey:
        cause = Cause.by(principal.actor, self._clock)
        return await change(
            self._store,
            lambda: self.get(principal.account_id, key_id),
            lambda key: decide(key, cause),
            lock=self._locks.of(key_id),
        )
