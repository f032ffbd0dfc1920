"""What can go wrong with a variable, each with a stable code."""

from sandyard.kit.errors import ConflictError, NotFoundError


class VariableNotFoundError(NotFoundError):
    """There is no variable with this name. List the variables to find it."""


class VariablesLimitError(ConflictError):
    """Your account is at its limit of variables and secrets. Remove one first."""

    code = "VARIABLES_LIMIT_EXCEEDED"


class SecretUnreadableError(ConflictError):
    """A value can't be decrypted: its key is no longer in SECRETS_KEY. Set the value again."""
