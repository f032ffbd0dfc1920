"""What can go wrong with an account, each with a stable code.

None of them tells a stranger whether an e-mail address or a user name is known here.
"""

from sandyard.kit.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
)


class InvalidCredentialsError(UnauthorizedError):
    """The login or the password is wrong, or the account is not active. Check both."""


class WrongPasswordError(ForbiddenError):
    """The current password is wrong. Nothing was changed."""


class LoginNeededError(ForbiddenError):
    """An API key may not do this. Log in with your password."""


class InvalidVerificationTokenError(InvalidError):
    """The token is unknown, used or expired, or the user name was taken meanwhile. Sign up
    again."""


class InvalidResetTokenError(InvalidError):
    """The token is unknown, used or expired. Request another."""


class AccountNotFoundError(NotFoundError):
    """There is no account with this id. List the users to find it."""


class AccountExistsError(ConflictError):
    """The e-mail address or the user name is taken. Choose another."""


class OwnAccountError(ConflictError):
    """You can't deactivate your own account. Another admin can."""


class LastAdminError(ConflictError):
    """This is the last active admin. Make another account an admin first."""


class SignupClosedError(ForbiddenError):
    """Sign-up is closed. Ask an admin for an account."""


class InvitationRequiredError(ForbiddenError):
    """Sign-up requires a valid invitation to this address. Ask an admin for one."""


class OidcNotConfiguredError(ForbiddenError):
    """No identity provider is configured. Log in with your password."""


class InvalidOidcLoginError(UnauthorizedError):
    """The login through the identity provider was not completed, took too long or was already used.
    Start it again."""


class EmailNotVerifiedError(ForbiddenError):
    """The identity provider has not verified your e-mail address. Verify it there, then log in
    again."""


class AccountInactiveError(ForbiddenError):
    """Your account is not active. Ask an admin to activate it."""


class OidcIssuerUnavailableError(UnavailableError):
    """The identity provider fails or does not respond. Try again shortly, or log in with your
    password."""
