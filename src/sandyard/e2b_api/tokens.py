"""The access token of each sandbox, and the signatures of links to its files."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

_PURPOSE = b"e2b sandbox access "
_UPLOAD = b"e2b build upload "


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


class SandboxTokens:
    """Derived from the secret and the sandbox's id: nothing is stored. The first secret issues
    tokens, all are accepted, so that secrets can be rotated."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets

    def issue(self, sandbox_id: str) -> str:
        return _token(self._secrets[0], _PURPOSE, sandbox_id)

    def opens(self, token: str, sandbox_id: str) -> bool:
        sent = token.encode()
        return any(hmac.compare_digest(sent, each.encode()) for each in self._all(sandbox_id))

    def signs(self, link: FileLink, sandbox_id: str) -> bool:
        """Whether the link was signed with a token of the sandbox."""
        sent = link.signature.encode()
        return any(
            hmac.compare_digest(sent, signature_of(link, token).encode())
            for token in self._all(sandbox_id)
        )

    def _all(self, sandbox_id: str) -> Sequence[str]:
        return [_token(secret, _PURPOSE, sandbox_id) for secret in self._secrets]


class UploadTokens:
    """For upload links of a build's files; each acts for the account that requested it."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets

    def issue(self, account_id: str, named: str) -> str:
        return f"{account_id}.{_token(self._secrets[0], _UPLOAD, f'{account_id}/{named}')}"

    def account_of(self, token: str, named: str) -> str | None:
        """The link's account; None if the link is invalid."""
        account_id, _, sent = token.partition(".")
        signed = f"{account_id}/{named}"
        known = (_token(secret, _UPLOAD, signed) for secret in self._secrets)
        is_ours = any(hmac.compare_digest(sent.encode(), each.encode()) for each in known)
        return account_id if is_ours else None


def _token(secret: str, purpose: bytes, signed: str) -> str:
    return hmac.new(secret.encode(), purpose + signed.encode(), hashlib.sha256).hexdigest()


def signature_of(link: FileLink, token: str) -> str:
    signed = f"{link.path}:{link.operation}:{link.username}:{token}"
    if link.expires_at is not None:
        signed += f":{link.expires_at}"
    digest = hashlib.sha256(signed.encode()).digest()
    return "v1_" + base64.b64encode(digest).rstrip(b"=").decode()
