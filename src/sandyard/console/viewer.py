"""The viewer of a page, and which parts of the API they can use."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp

from sandyard.console.api import Api, ApiError, Credentials
from sandyard.console.session import Session

_UNAUTHORIZED = 401


@dataclass(frozen=True, slots=True)
class Viewer:
    api: Api
    login: str | None
    account: dict[str, Any] | None
    """From `GET /me`; None for an operator's token."""
    is_operator: bool

    @property
    def name(self) -> str:
        return "operator" if self.account is None else str(self.account["username"])

    @property
    def account_id(self) -> str | None:
        return None if self.account is None else str(self.account["account_id"])


class Viewers:
    """Determines with every request who a session belongs to: it ends at once when a role or token
    is revoked."""

    def __init__(
        self, app: ASGIApp, credentials: Credentials, operator_tokens: Sequence[str]
    ) -> None:
        self._app = app
        self._credentials = credentials
        self._operator_tokens = operator_tokens

    async def of(self, request: HTTPConnection, session: Session) -> Viewer | None:
        """None if the session's credential is no longer valid."""
        if session.login is None:
            return self._operator(request) if self.accepts(session.operator or "") else None
        own = self.anonymous(request, login=session.login)
        try:
            account = await own.get(own.paths.platform + "/me")
        except ApiError as error:
            if error.status == _UNAUTHORIZED:
                return None
            raise
        is_operator = account["role"] == "admin"
        api = self._api(request, session.login, is_operator=is_operator)
        return Viewer(api, session.login, account, is_operator)

    def accepts(self, token: str) -> bool:
        """Whether it is an operator's token."""
        sent = token.encode()
        return any(hmac.compare_digest(sent, each.encode()) for each in self._operator_tokens)

    def anonymous(self, request: HTTPConnection, *, login: str | None = None) -> Api:
        return self._api(request, login, is_operator=False)

    def _operator(self, request: HTTPConnection) -> Viewer:
        return Viewer(self._api(request, None, is_operator=True), None, None, is_operator=True)

    def _api(self, request: HTTPConnection, login: str | None, *, is_operator: bool) -> Api:
        return Api(self._app, request, self._credentials, login=login, is_operator=is_operator)
