"""Public keys of accounts, and the decisions about them, without any I/O."""

import base64
import binascii
import hashlib
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

from sandyard.kit.changes.transitions import Cause, Transition, changed, created
from sandyard.platform.access.principal import Principal
from sandyard.platform.notifications.model import Notice, NotificationType
from sandyard.platform.ssh_keys.errors import SshKeyInvalidError

_RSA = "ssh-rsa"
_LEAST_RSA_BYTES = 384
_KINDS = (
    "ssh-ed25519",
    *(f"ecdsa-sha2-nistp{bits}" for bits in (256, 384, 521)),
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    _RSA,
)


@dataclass(frozen=True, slots=True)
class SshKey:
    SUBJECT: ClassVar[str] = "ssh_key_id"
    OWNER: ClassVar[str | None] = "user_account_id"

    ssh_key_id: str
    user_account_id: str
    name: str
    public_key: str
    """Kind and key, without a comment."""
    fingerprint: str
    api_key_id: str | None
    """The API key that added it, which it does not outlive; None for a login."""
    created_at: datetime
    deleted_at: datetime | None = None
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class AnySshKey:
    """The filter of a listing: none."""


@dataclass(frozen=True, slots=True)
class SshAddress:
    host: str
    port: int | None
    """None if there is no SSH server."""


def add_key(
    name: str, line: str, *, ssh_key_id: str, by: Principal, cause: Cause
) -> Transition[SshKey]:
    """SshKeyInvalidError."""
    kind, blob = _parts(line)
    key = SshKey(
        ssh_key_id=ssh_key_id,
        user_account_id=by.account_id,
        name=name,
        public_key=f"{kind} {base64.b64encode(blob).decode()}",
        fingerprint=fingerprint_of(blob),
        api_key_id=by.key_id,
        created_at=cause.at,
    )
    return created(key, "ssh_key.added", cause)


def remove_key(key: SshKey, cause: Cause) -> Transition[SshKey]:
    return changed(key, replace(key, deleted_at=cause.at), "ssh_key.removed", cause)


def new_key_notice(key: SshKey) -> Notice:
    return Notice(
        "New SSH key",
        f"The SSH key {key.name} ({key.fingerprint}) was added. If it was not you, remove it and "
        "change your password.",
        NotificationType.SUCCESS,
        related_entity_type="ssh_key",
        related_entity_id=key.ssh_key_id,
    )


def fingerprint_of(blob: bytes) -> str:
    """As OpenSSH shows it."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode()
    return f"SHA256:{digest.rstrip('=')}"


def _parts(line: str) -> tuple[str, bytes]:
    """Kind and content; SshKeyInvalidError."""
    words = line.split()
    try:
        kind, blob = words[0], base64.b64decode(words[1], validate=True)
    except (IndexError, binascii.Error) as error:
        raise SshKeyInvalidError from error
    fields = _fields(blob)
    is_one_line = len(line.strip().splitlines()) == 1
    is_weak = kind == _RSA and (len(fields) < 3 or len(fields[2].lstrip(b"\0")) < _LEAST_RSA_BYTES)
    if (
        not is_one_line
        or kind not in _KINDS
        or len(fields) < 2
        or fields[0] != kind.encode()
        or is_weak
    ):
        raise SshKeyInvalidError
    return kind, blob


def _fields(blob: bytes) -> list[bytes]:
    """The strings that it consists of; SshKeyInvalidError if there is something else."""
    fields = []
    while blob:
        length = int.from_bytes(blob[:4], "big")
        if len(blob) < 4 + length:
            raise SshKeyInvalidError
        fields.append(blob[4 : 4 + length])
        blob = blob[4 + length :]
    return fields
