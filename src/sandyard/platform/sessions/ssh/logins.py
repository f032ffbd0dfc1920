"""Who may log in to a sandbox by SSH, and for how long."""

from typing import Protocol

from sandyard.kit.errors import UnauthorizedError
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.sandboxes.network.gateway_targets import SandboxTargets
from sandyard.platform.sessions.ssh.model import SshLogin
from sandyard.platform.ssh_keys.model import SshKey, fingerprint_of
from sandyard.runtime.errors import NotRunningError


class AccountKeys(Protocol):
    async def find_by_fingerprint(self, account_id: str, fingerprint: str) -> SshKey | None: ...


class SshLogins:
    def __init__(self, keys: AccountKeys, targets: SandboxTargets, guard: AccessGuard) -> None:
        self._keys = keys
        self._targets = targets
        self._guard = guard

    async def find(self, sandbox_id: str, public_key: bytes) -> SshLogin | None:
        """The login with this key; None, whether it is the sandbox or the key that is wrong."""
        target = await self._targets.find(sandbox_id)
        if target is None:
            return None
        login = SshLogin(sandbox_id, target.account_id, fingerprint_of(public_key))
        try:
            await self._require_key(login)
        except UnauthorizedError:
            return None
        return login

    async def wake(self, login: SshLogin) -> None:
        """Start the sandbox if its owner wants that. Raises the error that prevents it."""
        target = await self._targets.find(login.sandbox_id)
        if target is not None and target.wakes and not target.is_running:
            await self._targets.wake(login.sandbox_id)

    async def require(self, login: SshLogin) -> None:
        """Raises UnauthorizedError or NotRunningError if it must end."""
        target = await self._targets.find(login.sandbox_id)
        if target is None or not target.is_running:
            raise NotRunningError
        await self._require_key(login)

    async def _require_key(self, login: SshLogin) -> None:
        key = await self._keys.find_by_fingerprint(login.account_id, login.fingerprint)
        if key is None:
            raise UnauthorizedError("Your SSH key was removed.")
        if key.api_key_id is not None:
            principal = Principal(login.account_id, Role.USER, key.api_key_id)
            try:
                await self._guard.check(principal)
            except UnauthorizedError as error:
                raise UnauthorizedError("Your credential has ended. Log in again.") from error
