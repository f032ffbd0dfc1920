"""The host keys of the SSH server, which all replicas share."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from sandyard.kit.clock import Clock, utc_time
from sandyard.platform.sessions.ssh.model import HostKey, in_force, next_generation
from sandyard.platform.variables.cipher import Cipher


class HostKeyStore(Protocol):
    async def read(self) -> Sequence[HostKey]:
        """All of them, oldest first."""

    async def add(self, key: HostKey) -> None:
        """Nothing happens if there is one of this generation."""


class HostKeys:
    def __init__(
        self, store: HostKeyStore, cipher: Cipher, *, clock: Clock, rotated_after: timedelta
    ) -> None:
        self._store = store
        self._cipher = cipher
        self._clock = clock
        self._rotated_after = rotated_after

    async def current(self) -> Sequence[str]:
        """The private key in use, then those that follow it. One that is due is made.
        SecretUnreadableError."""
        now = utc_time(self._clock.now())
        keys = await self._store.read()
        generation = next_generation(keys, now, rotated_after=self._rotated_after)
        if generation is not None:
            await self._store.add(HostKey(generation, self._cipher.encrypt(_new_key()), now))
            keys = await self._store.read()
        return [self._cipher.decrypt(each.encrypted) for each in in_force(keys, now)]

    async def public(self) -> Sequence[str]:
        """Their public halves, as in `known_hosts`."""
        return [_public_half(each) for each in await self.current()]


def _new_key() -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    made = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    return made.decode()


def _public_half(private_key: str) -> str:
    from cryptography.hazmat.primitives import serialization

    public = serialization.load_ssh_private_key(private_key.encode(), None).public_key()
    form = serialization.PublicFormat.OpenSSH
    return public.public_bytes(serialization.Encoding.OpenSSH, form).decode()
