"""What can go wrong with an API key, each with a stable code."""

from sandyard.kit.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError


class KeyNotFoundError(NotFoundError):
    """You have no API key with this id. List your keys to find it."""


class KeyNameTakenError(ConflictError):
    """You have an API key with this name. Choose another."""


class KeyMakesNoKeysError(ForbiddenError):
    """An API key can't create API keys, so that revoking it is final. Log in instead."""


class ExpiryPassedError(InvalidError):
    """`expires_at` is in the past. Send a future time, or leave it out."""
