"""Terminals by WebSocket: binary messages are keys and output, text messages are JSON."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

import orjson
from fastapi import APIRouter
from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from sandyard.kit.errors import ForbiddenError, InvalidError, SandyardError
from sandyard.kit.http.access_watch import until_refused
from sandyard.kit.http.schemas import Documented, eg
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.login_tokens import Login, Logins
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.access.routes import Caller, inside_routes
from sandyard.platform.http.fields import RequestBody
from sandyard.platform.sandboxes.http import SandboxId
from sandyard.platform.sessions.service import Sessions
from sandyard.platform.sessions.terminals import service
from sandyard.runtime.sessions.model import WORKSPACE, Command, TerminalSize


class TerminalOriginError(ForbiddenError):
    """Pages of this origin may not open terminals. Add the origin to CORS_ORIGINS."""

    code = "TERMINAL_ORIGIN_REFUSED"


_TOKEN_LIFETIME = timedelta(minutes=1)
_POLICY_VIOLATION = 1008
_TERM = {"TERM": "xterm-256color"}

Cells = Annotated[int, Field(ge=1, le=1000)]


class TerminalTokenAnswer(Documented):
    token: str = eg("eyJhbGciOi…", description="For `?token=` of this sandbox's terminal")
    expires_at: datetime = eg("2026-10-30T09:01:00Z")

    @classmethod
    def of(cls, login: Login) -> Self:
        return cls(token=login.access_token, expires_at=login.expires_at)


class TerminalQuery(RequestBody):
    """What the URL of a terminal says."""

    token: str | None = None
    command_id: str | None = None
    offset: Annotated[int, Field(ge=0, le=2**53)] = 0
    command: Annotated[str, Field(min_length=1, pattern=r"^[^\x00]+$")] | None = None
    folder: Annotated[str, Field(min_length=1, pattern=r"^[^\x00]+$")] = WORKSPACE
    columns: Cells = 80
    rows: Cells = 24
    reuse: bool = False

    def new(self) -> Command:
        words = service.LOGIN_SHELL if self.command is None else ("/bin/sh", "-c", self.command)
        size = TerminalSize(self.columns, self.rows)
        return Command(words, environment=_TERM, folder=self.folder, terminal=size)


class ResizeMessage(RequestBody):
    type: Literal["resize"]
    columns: Cells
    rows: Cells


class TerminalTokens:
    """Tokens that a page sends in place of a header, which browsers do not let it set."""

    def __init__(self, guard: AccessGuard, secrets: Sequence[str]) -> None:
        self._guard = guard
        self._secrets = secrets

    async def issue(self, sandbox_id: str, principal: Principal) -> Login:
        return await self._guard.issue(principal, self._logins(sandbox_id))

    async def read(self, sandbox_id: str, token: str) -> Principal:
        """LoginRequiredError if it is for another sandbox, or has expired."""
        return await self._guard.by_token(token, self._logins(sandbox_id))

    def _logins(self, sandbox_id: str) -> Logins:
        issuer = f"sandyard terminal {sandbox_id}"
        return Logins(self._secrets, lifetime=_TOKEN_LIFETIME, issuer=issuer)


def create_terminal_router(
    sessions: Sessions,
    terminals: service.Terminals,
    tokens: TerminalTokens,
    guard: AccessGuard,
    *,
    allowed_origins: Sequence[str],
) -> APIRouter:
    routes = inside_routes(guard, "/sandboxes/{sandbox_id}/terminal", tag="commands")

    @routes.post("/tokens", "Create a token for a terminal", 404, status_code=201)
    async def create_terminal_token(caller: Caller, sandbox_id: SandboxId) -> TerminalTokenAnswer:
        """Pass it as `?token=` to open this sandbox's terminal, within a minute."""
        await sessions.get_sandbox(sandbox_id, account_id=caller.account_id)
        return TerminalTokenAnswer.of(await tokens.issue(sandbox_id, caller))

    async def principal_of(websocket: WebSocket, query: TerminalQuery) -> Principal:
        _require_origin(websocket, allowed_origins)
        if query.token is not None:
            return await tokens.read(websocket.path_params["sandbox_id"], query.token)
        scope = {**websocket.scope, "type": "http", "method": "GET"}
        return await guard.require(Request(scope), Scope.RUN, is_write=False)

    async def serve(websocket: WebSocket) -> None:
        query = _query_of(websocket)
        principal = await principal_of(websocket, query)
        await websocket.accept()
        terminal = await _opened(terminals, websocket, query, principal.account_id)
        until_revoked = until_refused(partial(guard.check, principal))
        await terminal.serve(WebSocketClient(websocket), until_revoked)

    async def open_terminal(websocket: WebSocket) -> None:
        """Errors are sent as JSON before the connection is closed: a page can't read the answer to
        a handshake."""
        with suppress(WebSocketDisconnect):
            try:
                await serve(websocket)
            except SandyardError as error:
                await _refuse(websocket, error)
            else:
                await websocket.close()

    routes.router.add_websocket_route(routes.router.prefix, open_terminal)
    return routes.router


async def _opened(
    terminals: service.Terminals, websocket: WebSocket, query: TerminalQuery, account_id: str
) -> service.Terminal:
    sandbox_id = websocket.path_params["sandbox_id"]
    if query.command_id is not None:
        return await terminals.attach(
            sandbox_id, query.command_id, account_id=account_id, offset=query.offset
        )
    is_reused = query.reuse and query.command is None
    open_shell = terminals.reuse if is_reused else terminals.start
    return await open_shell(sandbox_id, query.new(), account_id=account_id)


async def _refuse(websocket: WebSocket, error: SandyardError) -> None:
    if websocket.application_state is WebSocketState.CONNECTING:
        await websocket.accept()
    shown = {"type": "error", "code": error.code, "message": error.message}
    await websocket.send_text(orjson.dumps(shown).decode())
    await websocket.close(_POLICY_VIOLATION)


class WebSocketClient:
    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def typed(self) -> AsyncIterator[service.Keys | service.Resize]:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if (data := message.get("bytes")) is not None:
                yield service.Keys(data)
            else:
                yield _resize_of(message.get("text") or "")

    async def tell(self, kind: str, **values: object) -> None:
        await self._websocket.send_text(orjson.dumps({"type": kind, **values}).decode())

    async def show(self, data: bytes) -> None:
        await self._websocket.send_bytes(data)


def _query_of(websocket: WebSocket) -> TerminalQuery:
    try:
        return TerminalQuery.model_validate(dict(websocket.query_params))
    except ValidationError as error:
        names = sorted({str(mistake["loc"][0]) for mistake in error.errors()})
        raise InvalidError(f"Malformed: {', '.join(names)}.") from error


def _resize_of(text: str) -> service.Resize:
    try:
        sent = ResizeMessage.model_validate_json(text)
    except ValidationError as error:
        raise InvalidError(
            'Send input as binary, and {"type": "resize", "columns": …, "rows": …} as text.'
        ) from error
    return service.Resize(TerminalSize(sent.columns, sent.rows))


def _require_origin(websocket: WebSocket, allowed: Sequence[str]) -> None:
    """A page of this server's host, or an allowed one; programs send no origin."""
    origin = websocket.headers.get("origin")
    own_host = websocket.headers.get("host")
    with suppress(ValueError):  # an invalid address is refused as well
        if origin is None or origin in allowed or urlsplit(origin).netloc == own_host:
            return
    raise TerminalOriginError
