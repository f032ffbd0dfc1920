"""E2B's API as an ASGI application: which requests are for it, and how its errors look."""

import logging

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.e2b_api.envd import connect
from sandyard.e2b_api.envd.app import Envd
from sandyard.e2b_api.envd.responses import error_answer
from sandyard.e2b_api.errors import SandboxGoneError
from sandyard.e2b_api.hosts import API, ENVD_PORT, LABEL, PREFIX, SANDBOX, E2bHosts
from sandyard.e2b_api.model import sandbox_id_of
from sandyard.e2b_api.sandboxes.http import Control
from sandyard.kit.errors import NotFoundError, SandyardError
from sandyard.kit.http.requests import values_of

logger = logging.getLogger(__name__)

_PORT = b"e2b-sandbox-port"


class E2bApi:
    """Serves the requests that its `E2bHosts` accept."""

    def __init__(
        self, control: Control, envd: Envd, *, hosts: E2bHosts, ports: ASGIApp | None = None
    ) -> None:
        """`ports` serves the other ports of sandboxes, by host."""
        self._control = control
        self._envd = envd
        self._hosts = hosts
        self._ports = ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = scope["path"].removeprefix(PREFIX) or "/"
        sandbox_id = self._sandbox_id(scope)
        try:
            if sandbox_id is not None and (port := self._other_port(scope)) is not None:
                await self._pass(scope, receive, send, path=path, host=f"{port}-{sandbox_id}")
                return
            response = await self._answer(request, sandbox_id, path)
        except ClientDisconnect:
            return
        except SandyardError as error:
            if scope["state"]["status"]:  # a response that has begun can only be aborted
                raise
            request.state.outcome = error.code
            response = self._refusal(error, sandbox_id, path)
        except Exception:
            logger.exception("unexpected error", extra={"request_id": request.state.request_id})
            if scope["state"]["status"]:
                raise
            response = self._refusal(SandyardError(), sandbox_id, path)
        await response(scope, receive, send)

    async def _answer(self, request: Request, sandbox_id: str | None, path: str) -> Response:
        """SDKs of 2025 name the sandbox in calls to the control API too."""
        label = self._hosts.label(request.scope)
        is_named = bool(values_of(request.scope["headers"], SANDBOX))
        may_be_inside = label != API and Envd.takes(path)
        if may_be_inside and (sandbox_id is not None or path == "/files"):
            return await self._envd.answer(request, sandbox_id, path)
        if label not in (None, API) or (may_be_inside and is_named):
            raise NotFoundError
        return await self._control.answer(request, path)

    def _refusal(self, error: SandyardError, sandbox_id: str | None, path: str) -> Response:
        answer = error_answer(error, sandbox_id=sandbox_id)
        is_from_inside = Envd.is_rpc(path) and answer.status_code != 502
        return connect.error_response(error) if is_from_inside else answer

    def _sandbox_id(self, scope: Scope) -> str | None:
        label = self._hosts.label(scope)
        if label is not None and (found := LABEL.fullmatch(label)):
            return sandbox_id_of(found[2])
        named = values_of(scope["headers"], SANDBOX)
        return sandbox_id_of(named[0].decode("latin-1")) if len(named) == 1 else None

    def _other_port(self, scope: Scope) -> int | None:
        if self._hosts.label(scope) is not None:
            return None
        sent = values_of(scope["headers"], _PORT)
        port = int(sent[0]) if sent and sent[0].isdigit() else ENVD_PORT
        return None if port == ENVD_PORT else port

    async def _pass(
        self, scope: Scope, receive: Receive, send: Send, *, path: str, host: str
    ) -> None:
        """Forwards to a port of the sandbox, as if the request came to that port's host."""
        if self._ports is None:
            raise NotFoundError
        headers = [each for each in scope["headers"] if each[0] != b"host"]
        headers.append((b"host", f"{host}.{self._hosts.domain}".encode()))
        raw_path = scope["raw_path"].removeprefix(PREFIX.encode()) or b"/"
        passed = {**scope, "path": path, "raw_path": raw_path, "headers": headers}
        try:
            await self._ports(passed, receive, send)
        except NotFoundError as error:
            raise SandboxGoneError from error
