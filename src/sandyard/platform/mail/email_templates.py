"""The templates of the mails that accounts get."""

import json
import shlex
from dataclasses import dataclass
from urllib.parse import urlencode

from sandyard.platform.mail.mailers import Mail

VERIFY_PAGE, RESET_PAGE, FORGOT_PAGE = "/account/verify", "/account/reset", "/account/forgot"
SIGNUP_PAGE = "/console/signup"
"""The page of this server that the links open."""

_GREETING = "Hello {username},\n\n"
_UNASKED = "\nIf you did not ask for this, you need not do anything.\n"


@dataclass(frozen=True, slots=True)
class EmailTemplates:
    public_url: str
    """The public URL of this server, without a trailing slash."""
    prefix: str
    """The prefix of the Platform's calls, for lines that can be pasted."""

    def verification(self, *, email: str, username: str, token: str) -> Mail:
        return Mail(
            email,
            "Verify your e-mail address for Sandyard",
            _GREETING.format(username=username)
            + "to open your account, follow this link within 24 hours:\n\n"
            + self._steps(VERIFY_PAGE, token, "auth/verify", token=token)
            + f"\nIf you did not choose the name {username}, somebody else signed up with your\n"
            "address. Then do nothing: they know the password that the account would have.\n",
        )

    def address_verification(self, *, email: str, username: str, token: str) -> Mail:
        return Mail(
            email,
            "Verify your e-mail address for Sandyard",
            _GREETING.format(username=username)
            + "to verify the address of your account, follow this link:\n\n"
            + self._steps(VERIFY_PAGE, token, "auth/verify", token=token)
            + _UNASKED,
        )

    def invitation(self, *, email: str, token: str) -> Mail:
        body = {
            "email": email,
            "username": "the name that you choose",
            "password": "your new password",
            "invitation": token,
        }
        return Mail(
            email,
            "You are invited to Sandyard",
            "Hello,\n\nto sign up, follow this link within seven days:\n\n"
            + self._steps(SIGNUP_PAGE, token, "auth/signup", sent="invitation", **body)
            + _UNASKED,
        )

    def email_taken(self, *, email: str) -> Mail:
        return Mail(
            email,
            "You have a Sandyard account",
            "Hello,\n\nsomebody, perhaps you, signed up for Sandyard with this address, but it "
            "already has an account.\nIf you forgot its password, request a new one:\n\n"
            + self._link(FORGOT_PAGE)
            + "\nor by hand:\n\n"
            + self._line("auth/password/forgot", email=email)
            + _UNASKED,
        )

    def username_taken(self, *, email: str, username: str) -> Mail:
        return Mail(
            email,
            "Choose another user name for Sandyard",
            f"Hello,\n\nthe user name {username} is not available. Sign up again with another.\n"
            + _UNASKED,
        )

    def reset(self, *, email: str, username: str, token: str) -> Mail:
        body = {"token": token, "password": "your new password"}
        return Mail(
            email,
            "Reset your Sandyard password",
            _GREETING.format(username=username)
            + "to set a new password, follow this link within an hour:\n\n"
            + self._steps(RESET_PAGE, token, "auth/password/reset", **body)
            + _UNASKED,
        )

    def _steps(self, page: str, secret: str, path: str, sent: str = "token", **body: str) -> str:
        return (
            self._link(page, secret)
            + f"\nor send the {sent} by hand:\n\n"
            + self._line(path, **body)
            + f"\nToken: {secret}\n"
        )

    def _link(self, page: str, token: str | None = None) -> str:
        query = f"?{urlencode({'token': token})}" if token else ""
        return f"  {self.public_url}{page}{query}\n"

    def _line(self, path: str, **body: str) -> str:
        sent = shlex.quote(json.dumps(body))  # an address may contain shell metacharacters
        return (
            f"  curl -X POST {self.public_url}{self.prefix}/{path} \\\n"
            f"    -H 'Content-Type: application/json' -d {sent}\n"
        )
