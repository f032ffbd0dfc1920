"""The use cases of API keys. Each reads the clock once."""

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.ids import IdMaker, account_api_key, is_resource_id, resource_id
from sandyard.kit.paging import Page
from sandyard.platform.api_keys.errors import KeyNotFoundError
from sandyard.platform.api_keys.model import (
    AccountKey,
    KeyChanges,
    KeyFilter,
    KeySort,
    beginning_of,
    hash_api_key,
    new_key_notice,
)
from sandyard.platform.api_keys.ports import KeyStore


class AccountKeys:
    def __init__(
        self, store: KeyStore, *, clock: Clock, make_api_key: IdMaker = account_api_key
    ) -> None:
        self._store = store
        self._clock = clock
        self._make_api_key = make_api_key

    async def create(
        self, account_id: str, *, name: str, description: str | None
    ) -> tuple[AccountKey, str]:
        """The key's row and the key itself, which nobody can show again; KeyNameTakenError."""
        now = utc_time(self._clock.now())
        api_key = self._make_api_key()
        key = AccountKey(
            key_id=resource_id("key"),
            user_account_id=account_id,
            name=name,
            description=description,
            api_key=beginning_of(api_key),
            is_active=True,
            last_used_at=None,
            created_at=now,
            updated_at=now,
        )
        await self._store.add_key(key, key_hash=hash_api_key(api_key), notice=new_key_notice(key))
        return key, api_key

    async def list(
        self,
        account_id: str,
        only: KeyFilter,
        *,
        sort: KeySort,
        limit: int,
        cursor: str | None,
    ) -> Page[AccountKey]:
        return await self._store.page_of_keys(
            account_id, only, sort=sort, limit=limit, cursor=cursor
        )

    async def get(self, account_id: str, key_id: str) -> AccountKey:
        known = is_resource_id("key", key_id)
        return _found(await self._store.find_key(account_id, key_id) if known else None)

    async def update(self, account_id: str, key_id: str, changes: KeyChanges) -> AccountKey:
        """Change what is given; an inactive key opens nothing until it is activated again."""
        if not changes or not is_resource_id("key", key_id):
            return await self.get(account_id, key_id)
        now = utc_time(self._clock.now())
        return _found(await self._store.update_key(account_id, key_id, changes, now=now))

    async def delete(self, account_id: str, key_id: str) -> None:
        now = utc_time(self._clock.now())
        known = is_resource_id("key", key_id)
        if not known or not await self._store.delete_key(account_id, key_id, now=now):
            raise KeyNotFoundError


def _found(key: AccountKey | None) -> AccountKey:
    if key is None:
        raise KeyNotFoundError
    return key
