"""Host keys of the SSH server and their rotation, and logins, without any I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

ANNOUNCED = timedelta(days=30)
"""How long clients can learn a new host key before it is used."""


@dataclass(frozen=True, slots=True)
class HostKey:
    generation: int
    encrypted: str = field(repr=False)
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SshLogin:
    """Who logged in with what, and where to."""

    sandbox_id: str
    account_id: str
    fingerprint: str


def in_force(keys: Sequence[HostKey], now: datetime) -> Sequence[HostKey]:
    """The key in use, then those that follow it. `keys` are in order, oldest first."""
    used = [each for each in keys if each.created_at + ANNOUNCED <= now]
    return [*(used[-1:] or keys[:1]), *(each for each in keys[1:] if each not in used)]


def next_generation(
    keys: Sequence[HostKey], now: datetime, *, rotated_after: timedelta
) -> int | None:
    """That of the key to make now, if one is due: the first, or one that follows an old one."""
    if not keys:
        return 0
    newest = keys[-1]
    return newest.generation + 1 if newest.created_at + rotated_after <= now else None
