"""SSH keys on SQLite or PostgreSQL."""

from sandyard.kit.sql.entities import find_entity
from sandyard.kit.sql.transitions import EntityTable
from sandyard.platform.entities.sql import SqlListing, SqlOwnedStore
from sandyard.platform.schema.tables import ssh_keys
from sandyard.platform.ssh_keys.errors import SshKeyTakenError
from sandyard.platform.ssh_keys.model import SshKey

SSH_KEYS = EntityTable(SshKey, ssh_keys)


class SqlSshKeyStore(SqlOwnedStore[SshKey]):
    name_taken = SshKeyTakenError
    cursor_name = "ssh keys"
    listing = SqlListing(SSH_KEYS)

    async def find_by_fingerprint(self, account_id: str, fingerprint: str) -> SshKey | None:
        this = ssh_keys.c.fingerprint == fingerprint
        return await find_entity(self._database, SSH_KEYS, *self.visible_to(account_id), this)
