"""The access token of each sandbox, and the signatures of links to its files."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

_PURPOSE = b"e2b sandbox access "
_UPLOAD = b"e2b build upload "
_LOGIN = "login"
_WEEK_SEC = 7 * 86_400
_UPLOAD_SEC = 3600


@dataclass(frozen=True, slots=True)
class FileLink:
    """The content of a link to a file in a sandbox. Anyone with the sandbox's token can make
    one."""

    path: str
    operation: str
    """`read` or `write`."""
    username: str
    signature: str
    expires_at: int | None = None

    def is_over(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at < now


@dataclass(frozen=True, slots=True)
class Holder:
    """The credential that a token for a sandbox is issued to, and ends with."""

    sandbox_id: str
    access_version: int
    """Of the sandbox: all its tokens end when it is stopped, but not when it is paused."""
    account_id: str
    token_version: int | None
    """Of the account: all its tokens end with its logins and its password."""
    key_id: str | None = None
    """None with a login."""


class SandboxTokens:
    """Derived from the secret, the holder and the week: nothing is stored. A token is valid in its
    week and the next one. The first secret issues tokens, all are accepted, so that secrets can be
    rotated."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets

    def issue(self, holder: Holder, *, at: float) -> str:
        return _sandbox_token(self._secrets[0], holder, _week(at))

    def opens(self, token: str, holder: Holder, *, at: float) -> bool:
        return _is_any(token, self._all(holder, at))

    def signs(self, link: FileLink, holder: Holder, *, at: float) -> bool:
        """Whether the link was signed with a token of the holder."""
        tokens = self._all(holder, at)
        return _is_any(link.signature, [signature_of(link, token) for token in tokens])

    def _all(self, holder: Holder, at: float) -> Sequence[str]:
        weeks = (_week(at), _week(at) - 1)
        return [_sandbox_token(each, holder, week) for each in self._secrets for week in weeks]


def key_id_of(token: str) -> str | None:
    """The key that the token was issued to, unverified; None with a login."""
    holder = token.partition(".")[0]
    return None if holder == _LOGIN else holder


def _week(at: float) -> int:
    return int(at // _WEEK_SEC)


def _sandbox_token(secret: str, holder: Holder, week: int) -> str:
    owner = f"{holder.account_id} {holder.token_version} {holder.key_id}"
    signed = f"{holder.sandbox_id} {holder.access_version} {owner} {week}"
    return f"{holder.key_id or _LOGIN}.{_token(secret, _PURPOSE, signed)}"


class UploadTokens:
    """For upload links of a build's files; each acts for the account that requested it, for an
    hour."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets

    def issue(self, account_id: str, named: str, *, at: float) -> str:
        end = int(at) + _UPLOAD_SEC
        return f"{account_id}.{end}.{_upload_token(self._secrets[0], account_id, end, named)}"

    def account_of(self, token: str, named: str, *, at: float) -> str | None:
        """The link's account; None if the link is invalid, or has expired."""
        account_id, _, rest = token.partition(".")
        end, _, sent = rest.partition(".")
        known = [_upload_token(each, account_id, end, named) for each in self._secrets]
        return account_id if _is_any(sent, known) and at < int(end) else None


def _upload_token(secret: str, account_id: str, end: int | str, named: str) -> str:
    return _token(secret, _UPLOAD, f"{account_id}/{end}/{named}")


def _is_any(sent: str, known: Sequence[str]) -> bool:
    """In constant time."""
    return any(hmac.compare_digest(sent.encode(), each.encode()) for each in known)


def _token(secret: str, purpose: bytes, signed: str) -> str:
    return hmac.new(secret.encode(), purpose + signed.encode(), hashlib.sha256).hexdigest()


def signature_of(link: FileLink, token: str) -> str:
    signed = f"{link.path}:{link.operation}:{link.username}:{token}"
    if link.expires_at is not None:
        signed += f":{link.expires_at}"
    digest = hashlib.sha256(signed.encode()).digest()
    return "v1_" + base64.b64encode(digest).rstrip(b"=").decode()
