"""What can go wrong with an API key, each with a stable code."""

from sandyard.kit.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError


class KeyNotFoundError(NotFoundError):
    """You have no API key with this id. List your keys to find it."""

    code = "KEY_NOT_FOUND"


class KeyNameTakenError(ConflictError):
    """You have an API key with this name. Choose another."""

    code = "KEY_NAME_TAKEN"


class KeyMakesNoKeysError(ForbiddenError):
    """An API key can't make API keys, so that it ends for good when it is taken away. Log in."""

    code = "KEY_MAKES_NO_KEYS"


class ExpiryPassedError(InvalidError):
    """`expires_at` is over already. Give a time to come, or leave it out."""

    code = "EXPIRY_PASSED"
