"""The use cases of API keys."""

from sandyard.kit.ids import account_api_key, e2b_api_key, resource_id
from sandyard.platform.access.principal import Principal
from sandyard.platform.api_keys import model
from sandyard.platform.api_keys.errors import KeyNotFoundError
from sandyard.platform.api_keys.model import AccountKey, KeyFormat, NewKey
from sandyard.platform.entities.apply import OwnedStore
from sandyard.platform.entities.model import FieldChanges
from sandyard.platform.entities.service import OwnedEntities
from sandyard.platform.notifications.model import create_notification

_MAKE = {KeyFormat.SANDYARD: account_api_key, KeyFormat.E2B: e2b_api_key}


class AccountKeys(OwnedEntities[AccountKey, OwnedStore[AccountKey]]):
    """What it changes takes effect with the next request."""

    id_prefix = "key"
    not_found = KeyNotFoundError

    async def create(self, principal: Principal, new: NewKey) -> tuple[AccountKey, str]:
        """The key's row and the key itself, which can't be shown again; KeyNameTakenError,
        KeyMakesNoKeysError, ExpiryPassedError."""
        cause = self._cause(principal)
        api_key = _MAKE[new.format]()
        made = model.create_key(
            new, key_id=resource_id("key"), api_key=api_key, by=principal, cause=cause
        )
        notification = create_notification(
            model.new_key_notice(made.result),
            notification_id=resource_id("not"),
            account_id=principal.account_id,
            cause=cause,
        )
        await self._store.apply(made, notification)
        return made.result, api_key

    async def update(self, principal: Principal, key_id: str, changes: FieldChanges) -> AccountKey:
        """Change the given fields; KeyNameTakenError."""
        return await self._change(
            principal, key_id, lambda key, cause: model.update_key(key, changes, cause)
        )

    async def activate(self, principal: Principal, key_id: str) -> AccountKey:
        return await self._change(principal, key_id, model.activate_key)

    async def deactivate(self, principal: Principal, key_id: str) -> AccountKey:
        return await self._change(principal, key_id, model.deactivate_key)

    async def delete(self, principal: Principal, key_id: str) -> None:
        await self._change(principal, key_id, model.revoke_key)
