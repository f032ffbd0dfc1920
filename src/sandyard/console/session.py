"""The session: a credential of the API, in an encrypted cookie that every replica can read."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from starlette.requests import HTTPConnection
from starlette.responses import Response

from sandyard.kit.wired import wired

SESSION_COOKIE = "__Host-sandyard"
FLOW_COOKIE = "__Host-sandyard-oidc"
_LIFETIME_SEC = 12 * 3600
_FLOW_LIFETIME_SEC = 600


@dataclass(frozen=True, slots=True)
class Session:
    """A login of the Platform, or an operator's token; exactly one of the two."""

    login: str | None = None
    operator: str | None = None


@dataclass(frozen=True, slots=True)
class LoginFlow:
    """A started login through an identity provider, and the page to continue with."""

    state: str
    nonce: str
    code_verifier: str
    next: str


T = TypeVar("T", bound=Session | LoginFlow)


@wired
class EncryptedCookie(Generic[T]):
    """A value in a `__Host-` cookie (no other host can set it), inaccessible to scripts, and sent
    from other sites only when a link is followed. No cookie is accepted in place of another."""

    name: str
    kind: type[T]
    """A dataclass."""
    secrets: Sequence[str]
    """The first one encrypts, any of them decrypts."""
    purpose: str
    lifetime_sec: int

    @property
    def _cipher(self) -> MultiFernet:
        return _cipher_of(tuple(self.secrets), self.purpose)

    def read(self, request: HTTPConnection) -> T | None:
        """None if there is none, or if it is too old or not ours."""
        sent = request.cookies.get(self.name)
        if not sent:
            return None
        try:
            fields = json.loads(self._cipher.decrypt(sent.encode(), ttl=self.lifetime_sec))
        except (InvalidToken, ValueError):
            return None
        return self.kind(**fields)

    def write(self, response: Response, value: T) -> None:
        fields = json.dumps(asdict(value))
        response.set_cookie(
            self.name,
            self._cipher.encrypt(fields.encode()).decode(),
            max_age=self.lifetime_sec,
            path="/",
            secure=True,
            httponly=True,
            samesite="lax",
        )

    def clear(self, response: Response) -> None:
        response.delete_cookie(self.name, path="/", secure=True, httponly=True, samesite="lax")


class Cookies:
    """The session, and the state of a login through an identity provider."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self.session = EncryptedCookie(
            SESSION_COOKIE,
            Session,
            secrets,
            purpose="sandyard console",
            lifetime_sec=_LIFETIME_SEC,
        )
        self.flow = EncryptedCookie(
            FLOW_COOKIE,
            LoginFlow,
            secrets,
            purpose="sandyard oidc",
            lifetime_sec=_FLOW_LIFETIME_SEC,
        )


@lru_cache(maxsize=8)
def _cipher_of(secrets: tuple[str, ...], purpose: str) -> MultiFernet:
    return MultiFernet([Fernet(base64.urlsafe_b64encode(_key(each, purpose))) for each in secrets])


def _key(secret: str, purpose: str) -> bytes:
    return hashlib.scrypt(secret.encode(), salt=purpose.encode(), n=2, r=8, p=1, dklen=32)
