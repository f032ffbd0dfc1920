"""What can go wrong with a variable, each with a stable code."""

from sandyard.kit.errors import ConflictError, NotFoundError


class VariableNotFoundError(NotFoundError):
    """There is no variable of this name here. List those that there are."""

    code = "VARIABLE_NOT_FOUND"


class VariablesLimitError(ConflictError):
    """You have as many variables and secrets as your account may have. Remove one first."""

    code = "VARIABLES_LIMIT_EXCEEDED"


class SecretUnreadableError(ConflictError):
    """A value can't be decrypted: its key is not in SECRETS_KEY any more. Set the value again."""

    code = "SECRET_UNREADABLE"
