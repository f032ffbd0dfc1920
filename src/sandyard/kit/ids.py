"""Makers of identifiers."""

import secrets
import string
import uuid
from collections.abc import Callable

IdMaker = Callable[[], str]

_ALPHABET = string.ascii_lowercase + string.digits
_SANDBOX_NAMESPACE = uuid.UUID("6f0e3e0c-6f0b-5b57-9a3c-2f6d7f1f7c11")


def request_id() -> str:
    return f"req_{secrets.token_hex(8)}"


def holder_id() -> str:
    """A name for this process, for leases that only their holder may renew."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(16))


def uuid4() -> str:
    return str(uuid.uuid4())


def device_api_key() -> str:
    """32 random bytes, as 64 hexadecimal digits."""
    return secrets.token_hex(32)


def sandbox_id(external_id: str) -> str:
    """The same external id always gives the same sandbox id, so a second row can't be made."""
    return str(uuid.uuid5(_SANDBOX_NAMESPACE, external_id))
