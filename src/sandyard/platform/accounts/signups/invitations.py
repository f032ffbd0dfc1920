"""Who may sign up, and invitations: they are signed, so that none has to be stored."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from sandyard.platform.access.login_tokens import Logins
from sandyard.platform.accounts.errors import InvitationRequiredError, SignupClosedError
from sandyard.platform.accounts.model import normalize_email

LIFETIME = timedelta(days=7)
_ISSUER = "sandyard invitation"

SignupMode = Literal["open", "invite", "closed"]


class Invitations:
    def __init__(self, secrets: Sequence[str], mode: SignupMode) -> None:
        self._tokens = Logins(secrets, lifetime=LIFETIME, issuer=_ISSUER)
        self._mode = mode

    def issue(self, email: str, *, now: datetime) -> str:
        """Valid for this address only. It makes one account, as an address has at most one.
        SignupClosedError."""
        if self._mode == "closed":
            raise SignupClosedError
        made = self._tokens.issue(account_id=normalize_email(email), token_version=0, now=now)
        return made.access_token

    def require(self, email: str, invitation: str | None, *, now: datetime) -> None:
        """Raise unless the address may sign up. SignupClosedError, InvitationRequiredError."""
        if self._mode == "closed":
            raise SignupClosedError
        if self._mode == "invite":
            claim = self._tokens.read(invitation or "", now=now)
            if claim is None or claim.account_id != normalize_email(email):
                raise InvitationRequiredError
