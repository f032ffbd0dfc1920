"""The ports through which the gateway finds sandboxes and previews."""

from datetime import datetime
from typing import Protocol

from sandyard.gateway.model import Account, Grant, Key, Target
from sandyard.runtime.sessions.ports import Ports


class Targets(Protocol):
    """Sandboxes, or previews by their project's id. Every method raises UnavailableError if the
    state can't be determined, and ElsewhereError if another node has it."""

    async def find(self, target_id: str) -> Target | None:
        """The current target, of any account."""

    async def ports(self, target_id: str) -> Ports:
        """The ports of the machine that runs it. Raises NotRunningError or NotFoundError if none
        does."""

    async def wake(self, target_id: str) -> Target:
        """Start it, together with concurrent callers; returns its state. Raises the error that
        prevents it from running."""


class OwnedTargets(Protocol):
    """The owners of targets, and the ports of their programs."""

    async def is_owned(self, target_id: str, *, account_id: str) -> bool:
        """Whether it exists and belongs to this account."""

    async def program_port(self, target_id: str) -> int | None:
        """The port that its program listens on, or would; None if it can't be reached here."""


class CredentialLookup(Protocol):
    """Credentials as last written, never cached."""

    async def find_account(self, account_id: str) -> Account | None: ...

    async def find_key_by_id(self, key_id: str) -> Key | None:
        """None if it was deleted."""


async def is_in_force(grant: Grant, credentials: CredentialLookup, *, now: datetime) -> bool:
    """Whether its account is active and has not revoked it, nor the key that requested it."""
    if grant.key_id is None:
        return grant.is_in_force(await credentials.find_account(grant.account_id))
    key = await credentials.find_key_by_id(grant.key_id)
    return key is not None and key.holds_at(now) and grant.is_in_force(key.account)
