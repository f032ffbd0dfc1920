"""What can go wrong with an SSH key, each with a stable code."""

from sandyard.kit.errors import ConflictError, InvalidError, NotFoundError


class SshKeyNotFoundError(NotFoundError):
    """You have no SSH key with this id. List your SSH keys to find it."""


class SshKeyTakenError(ConflictError):
    """You have added this key already, or one with this name. Choose another name."""


class SshKeyInvalidError(InvalidError):
    """`public_key` is not a public key of OpenSSH that is strong enough: ed25519, ECDSA, or RSA of
    at least 3072 bits. Send the line in a file such as `id_ed25519.pub`."""
