"""The use cases of API keys."""

import string

from sandyard.kit.idempotency import is_repeat, new_id, new_secret
from sandyard.kit.ids import ALPHABET, resource_id
from sandyard.platform.access.principal import Principal
from sandyard.platform.api_keys import model
from sandyard.platform.api_keys.errors import KeyNotFoundError
from sandyard.platform.api_keys.model import AccountKey, KeyFormat, NewKey
from sandyard.platform.entities.apply import OwnedStore
from sandyard.platform.entities.model import FieldChanges
from sandyard.platform.entities.service import OwnedEntities
from sandyard.platform.notifications.model import create_notification

_FORMS = {
    KeyFormat.SANDYARD: ("sbk-", ALPHABET),
    KeyFormat.E2B: ("e2b_", string.hexdigits[:16]),
}
"""The prefix of a key, and the letters of the 40 after it, which E2B's SDKs may check."""


class AccountKeys(OwnedEntities[AccountKey, OwnedStore[AccountKey]]):
    """What it changes takes effect with the next request."""

    id_prefix = "key"
    not_found = KeyNotFoundError

    async def create(self, principal: Principal, new: NewKey) -> tuple[AccountKey, str]:
        """The key's row and the key itself, which can't be shown again; KeyNameTakenError,
        KeyMakesNoKeysError, ExpiryPassedError."""
        cause = self._cause(principal)
        prefix, letters = _FORMS[new.format]
        key_id, api_key = new_id("key"), prefix + new_secret(letters, 40)
        if is_repeat() and (found := await self.find(principal.account_id, key_id)):
            return found, api_key
        made = model.create_key(new, key_id=key_id, api_key=api_key, by=principal, cause=cause)
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
