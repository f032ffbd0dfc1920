"""Decisions about logins through an identity provider, without any I/O."""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandyard.kit.changes.transitions import Cause, Transition, removed
from sandyard.platform.accounts.errors import EmailNotVerifiedError, InvalidOidcLoginError
from sandyard.platform.accounts.model import EMAIL, Account, create_account, normalize_email
from sandyard.platform.accounts.signups.model import PendingSignup, Taken

_LONGEST_EMAIL = 254
_LONGEST_NAME = 255
_SHORTEST_USERNAME, _LONGEST_USERNAME = 3, 80


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """The secrets of a login that only the requesting browser knows; the answer must match them."""

    state: str = field(repr=False)
    nonce: str = field(repr=False)
    code_verifier: str = field(repr=False)

    @property
    def code_challenge(self) -> str:
        """By RFC 7636, with the method S256."""
        digest = hashlib.sha256(self.code_verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Identity:
    email: str
    username: str
    full_name: str | None


def identity_of(claims: Mapping[str, Any], *, client_id: str, nonce: str) -> Identity:
    """The identity in an ID token signed by the issuer. InvalidOidcLoginError if it is for another
    client or another login, EmailNotVerifiedError."""
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if client_id not in named or claims.get("azp", client_id) != client_id:
        raise InvalidOidcLoginError
    if len(named) > 1 and "azp" not in claims:
        raise InvalidOidcLoginError
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise InvalidOidcLoginError
    email = claims.get("email")
    if claims.get("email_verified") is not True or not _is_email(email):
        raise EmailNotVerifiedError
    preferred = claims.get("preferred_username")
    return Identity(
        email=normalize_email(str(email)),
        username=_username(str(preferred or email).partition("@")[0]),
        full_name=_full_name(claims.get("name")),
    )


def open_account(
    identity: Identity,
    of_address: Sequence[PendingSignup],
    taken: Taken,
    *,
    account_id: str,
    password_hash: str,
    cause: Cause,
) -> tuple[Transition[Account], Sequence[Transition[PendingSignup]]]:
    """The account, and the end of all sign-ups of its address, which is now verified."""
    suffix = f"-{account_id}" if taken.username else ""
    account = create_account(
        account_id=account_id,
        email=identity.email,
        username=identity.username + suffix,
        full_name=identity.full_name,
        password_hash=password_hash,
        cause=cause,
    )
    return account, [removed(each, "signup.expired", cause) for each in of_address]


def _is_email(value: object) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= _LONGEST_EMAIL
        and re.fullmatch(EMAIL, value, re.ASCII) is not None
    )


def _username(wished: str) -> str:
    """A valid user name, made from the provider's name of the user."""
    allowed = re.sub(r"[^A-Za-z0-9._-]+", "-", wished)[:_LONGEST_USERNAME].strip("-")
    return allowed if len(allowed) >= _SHORTEST_USERNAME else f"user-{allowed}".strip("-")


def _full_name(name: object) -> str | None:
    if not isinstance(name, str) or not name.isprintable():
        return None
    return name.strip()[:_LONGEST_NAME].strip() or None
