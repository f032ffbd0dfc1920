"""What can go wrong with an account, each with a stable code.

None of them tells a stranger whether an e-mail address or a user name is known here.
"""

from sandyard.kit.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
)


class InvalidCredentialsError(UnauthorizedError):
    """The login or the password is wrong, or the account is not active. Check both."""

    code = "INVALID_CREDENTIALS"


class WrongPasswordError(ForbiddenError):
    """The current password is wrong. Nothing was changed."""

    code = "WRONG_PASSWORD"


class InvalidVerificationTokenError(InvalidError):
    """The token is unknown, used or too old, or its name was taken meanwhile. Sign up again."""

    code = "INVALID_VERIFICATION_TOKEN"


class InvalidResetTokenError(InvalidError):
    """The token is unknown, used or too old. Ask for another."""

    code = "INVALID_RESET_TOKEN"


class AccountNotFoundError(NotFoundError):
    """There is no account with this id. List the users to find it."""

    code = "ACCOUNT_NOT_FOUND"


class AccountExistsError(ConflictError):
    """The e-mail address or the user name is taken. Choose another."""

    code = "ACCOUNT_EXISTS"


class OwnAccountError(ConflictError):
    """You can't deactivate your own account. Let another admin do it."""

    code = "OWN_ACCOUNT"


class LastAdminError(ConflictError):
    """This is the last active admin. Make another one first."""

    code = "LAST_ADMIN"
