"""The mails that accounts get."""

import json
import shlex
from dataclasses import dataclass

from sandyard.platform.mail import Mail

_GREETING = "Hello {username},\n\n"
_UNASKED = "\nIf you did not ask for this, you need not do anything.\n"


@dataclass(frozen=True, slots=True)
class Letters:
    api_url: str
    """Where the Platform's calls are, for lines that can be pasted."""

    def verification(self, *, email: str, username: str, token: str) -> Mail:
        return Mail(
            email,
            "Verify your e-mail address for Sandyard",
            _GREETING.format(username=username)
            + "to open your account, send this token within 24 hours:\n\n"
            + self._line("auth/verify", token=token)
            + f"\nToken: {token}\n\n"
            f"If you did not choose the name {username}, somebody else signed up with your\n"
            "address. Then do not send it: they know the password that the account would have.\n",
        )

    def email_taken(self, *, email: str) -> Mail:
        return Mail(
            email,
            "You have a Sandyard account",
            "Hello,\n\nsomebody, perhaps you, signed up for Sandyard with this address, but it "
            "has an account\nalready. If you forgot its password, ask for a new one:\n\n"
            + self._line("auth/password/forgot", email=email)
            + _UNASKED,
        )

    def username_taken(self, *, email: str, username: str) -> Mail:
        return Mail(
            email,
            "Choose another user name for Sandyard",
            f"Hello,\n\nthe user name {username} can't be had. Sign up again with another one.\n"
            + _UNASKED,
        )

    def reset(self, *, email: str, username: str, token: str) -> Mail:
        return Mail(
            email,
            "Reset your Sandyard password",
            _GREETING.format(username=username)
            + "to set a new password, send this token within an hour:\n\n"
            + self._line("auth/password/reset", token=token, password="your new password")  # noqa: S106
            + f"\nToken: {token}\n"
            + _UNASKED,
        )

    def _line(self, path: str, **body: str) -> str:
        sent = shlex.quote(json.dumps(body))  # an address may hold what a shell takes for its own
        return (
            f"  curl -X POST {self.api_url}/{path} \\\n"
            f"    -H 'Content-Type: application/json' -d {sent}\n"
        )
