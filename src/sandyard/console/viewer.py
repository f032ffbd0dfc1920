"""The viewer of a page, and which parts of the API they can use."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp

from sandyard.console.api import Api, ApiError, ApiPaths, OwnTokens
from sandyard.console.session import Session

_UNAUTHORIZED = 401
_EVERY_PART = frozenset({"broker", "telemetry", "platform", "previews"})
_NO_PART: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Viewer:
    api: Api
    account: dict[str, Any] | None
    """From `GET /me`; None for an operator's token."""

    def operates(self, part: str) -> bool:
        return part in self.api.operates

    @property
    def name(self) -> str:
        return "operator" if self.account is None else str(self.account["username"])

    @property
    def account_id(self) -> str | None:
        return None if self.account is None else str(self.account["account_id"])


@dataclass(slots=True, eq=False)
class Viewers:
    """Determines with every request who a session belongs to: it ends at once when a role or token
    is revoked."""

    app: ASGIApp
    paths: ApiPaths
    tokens: OwnTokens

    async def of(self, request: HTTPConnection, session: Session) -> Viewer | None:
        """None if the session's credential is no longer valid."""
        api = self.anonymous(request)
        if session.login is None:
            operates = self.operated_by(session.operator or "")
            return Viewer(replace(api, operates=operates), None) if operates else None
        api = replace(api, login=session.login)
        try:
            account = await api.get("platform/me")
        except ApiError as error:
            if error.status == _UNAUTHORIZED:
                return None
            raise
        operates = _EVERY_PART if account["role"] == "admin" else _NO_PART
        return Viewer(replace(api, operates=operates, username=account["username"]), account)

    def operated_by(self, token: str) -> frozenset[str]:
        """The parts that this token's owner may operate: all with the Broker's, which is that of
        the server's operator; only Telemetry with its own."""
        if _is_one_of(token, self.tokens.broker_admin):
            return _EVERY_PART
        is_telemetry = _is_one_of(token, self.tokens.telemetry_admin)
        return frozenset({"telemetry"}) if is_telemetry else _NO_PART

    def anonymous(self, request: HTTPConnection) -> Api:
        return Api(self.app, request, self.paths, self.tokens)


def _is_one_of(token: str, accepted: Sequence[str]) -> bool:
    return any(hmac.compare_digest(token.encode(), each.encode()) for each in accepted)
