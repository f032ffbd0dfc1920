"""Encryption of values at rest: by the first key of SECRETS_KEY; each key decrypts."""

import base64
import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from sandyard.platform.variables.errors import SecretUnreadableError

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


class Cipher:
    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys

    @property
    def _fernet(self) -> "MultiFernet":
        return _fernet_of(tuple(self._keys))

    def encrypt(self, value: str) -> str:
        return self._fernet.encrypt(value.encode()).decode()

    def decrypt(self, encrypted: str) -> str:
        """SecretUnreadableError if none of the keys is the one that encrypted it."""
        from cryptography.fernet import InvalidToken

        try:
            return self._fernet.decrypt(encrypted).decode()
        except InvalidToken as error:
            raise SecretUnreadableError from error


@lru_cache(maxsize=8)
def _fernet_of(keys: tuple[str, ...]) -> "MultiFernet":
    """Made when needed: not every process needs it."""
    from cryptography.fernet import Fernet, MultiFernet

    return MultiFernet([Fernet(_fernet_key(key)) for key in keys])


def _fernet_key(key: str) -> bytes:
    """The 32 bytes that Fernet needs, from a key of any form; keys are long and random."""
    return base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest())
