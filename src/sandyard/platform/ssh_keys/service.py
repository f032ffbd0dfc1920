"""The use cases of SSH keys."""

from typing import Protocol

from sandyard.kit.ids import resource_id
from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.apply import OwnedStore
from sandyard.platform.entities.service import OwnedEntities
from sandyard.platform.notifications.model import create_notification
from sandyard.platform.ssh_keys import model
from sandyard.platform.ssh_keys.errors import SshKeyNotFoundError
from sandyard.platform.ssh_keys.model import SshKey


class SshKeyStore(OwnedStore[SshKey], Protocol):
    async def find_by_fingerprint(self, account_id: str, fingerprint: str) -> SshKey | None: ...


class SshKeys(OwnedEntities[SshKey, SshKeyStore]):
    """What it changes takes effect with the next login; sessions of a removed key end within five
    seconds."""

    id_prefix = "ssk"
    not_found = SshKeyNotFoundError

    async def add(self, principal: Principal, *, name: str, public_key: str) -> SshKey:
        """SshKeyInvalidError, SshKeyTakenError."""
        cause = self._cause(principal)
        made = model.add_key(
            name,
            public_key,
            ssh_key_id=resource_id(self.id_prefix),
            by=principal,
            cause=cause,
        )
        notification = create_notification(
            model.new_key_notice(made.result),
            notification_id=resource_id("not"),
            account_id=principal.account_id,
            cause=cause,
        )
        await self._store.apply(made, notification)
        return made.result

    async def remove(self, principal: Principal, ssh_key_id: str) -> None:
        await self._change(principal, ssh_key_id, model.remove_key)
