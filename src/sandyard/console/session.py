"""The session: a credential of the API, in an encrypted cookie that every replica can read."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from starlette.requests import HTTPConnection
from starlette.responses import Response

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


class EncryptedCookie:
    """A `__Host-` cookie (no other host can set it), inaccessible to scripts, and sent from other
    sites only when a link is followed. No cookie is accepted in place of another."""

    def __init__(
        self, name: str, secrets: Sequence[str], *, purpose: str, lifetime_sec: int
    ) -> None:
        """The first secret encrypts, any of them decrypts."""
        self._name = name
        self._secrets = secrets
        self._purpose = purpose
        self._lifetime_sec = lifetime_sec

    @property
    def _cipher(self) -> MultiFernet:
        return _cipher_of(tuple(self._secrets), self._purpose)

    def read(self, request: HTTPConnection) -> Mapping[str, Any] | None:
        """None if there is none, or if it is too old or not ours."""
        sent = request.cookies.get(self._name)
        if not sent:
            return None
        try:
            fields: Mapping[str, Any] = json.loads(
                self._cipher.decrypt(sent.encode(), ttl=self._lifetime_sec)
            )
        except (InvalidToken, ValueError):
            return None
        return fields

    def write(self, response: Response, fields: Mapping[str, Any]) -> None:
        response.set_cookie(
            self._name,
            self._cipher.encrypt(json.dumps(fields).encode()).decode(),
            max_age=self._lifetime_sec,
            path="/",
            secure=True,
            httponly=True,
            samesite="lax",
        )

    def clear(self, response: Response) -> None:
        response.delete_cookie(self._name, path="/", secure=True, httponly=True, samesite="lax")


class SessionCookies:
    """Reads and writes the session, and the state of a login through an identity provider."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._session = EncryptedCookie(
            SESSION_COOKIE, secrets, purpose="sandyard console", lifetime_sec=_LIFETIME_SEC
        )
        self._flow = EncryptedCookie(
            FLOW_COOKIE, secrets, purpose="sandyard oidc", lifetime_sec=_FLOW_LIFETIME_SEC
        )

    def read(self, request: HTTPConnection) -> Session | None:
        fields = self._session.read(request)
        return None if fields is None else Session(**fields)

    def write(self, response: Response, session: Session) -> None:
        self._session.write(response, asdict(session))

    def clear(self, response: Response) -> None:
        self._session.clear(response)

    def read_flow(self, request: HTTPConnection) -> LoginFlow | None:
        fields = self._flow.read(request)
        return None if fields is None else LoginFlow(**fields)

    def write_flow(self, response: Response, flow: LoginFlow) -> None:
        self._flow.write(response, asdict(flow))

    def clear_flow(self, response: Response) -> None:
        self._flow.clear(response)


@lru_cache(maxsize=8)
def _cipher_of(secrets: tuple[str, ...], purpose: str) -> MultiFernet:
    return MultiFernet([Fernet(base64.urlsafe_b64encode(_key(each, purpose))) for each in secrets])


def _key(secret: str, purpose: str) -> bytes:
    return hashlib.scrypt(secret.encode(), salt=purpose.encode(), n=2, r=8, p=1, dklen=32)
