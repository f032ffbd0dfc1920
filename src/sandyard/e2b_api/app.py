"""E2B's API as an ASGI application: which requests are for it, and how its errors look."""

import logging
import re

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.e2b_api import connect
from sandyard.e2b_api.answers import error_answer
from sandyard.e2b_api.control.app import Control
from sandyard.e2b_api.envd.app import Envd
from sandyard.e2b_api.errors import SandboxGoneError
from sandyard.e2b_api.model import ENVD_PORT, sandbox_id_of
from sandyard.kit.errors import NotFoundError, SandyardError
from sandyard.kit.http import values_of

logger = logging.getLogger(__name__)

PREFIX = "/e2b"
_API = "api"
_SANDBOX, _PORT = b"e2b-sandbox-id", b"e2b-sandbox-port"
_LABEL = re.compile(r"([1-9]\d{0,4})-(sbx-[a-z0-9-]+)")


class E2bApi:
    """Below `/e2b`; at the host `api` of the sandboxes' domain; at port 49983 of every sandbox;
    and wherever a request names its sandbox in a header, for SDKs that are told of one origin."""

    def __init__(
        self, control: Control, envd: Envd, *, domain: str, ports: ASGIApp | None = None
    ) -> None:
        """`ports` serves the other ports of sandboxes, by their hosts."""
        self._control = control
        self._envd = envd
        self._domain = domain
        self._ports = ports

    def takes(self, scope: Scope) -> bool:
        if scope["type"] != "http":
            return False
        host = self._label(scope)
        if host is not None:
            return host == _API or _port_of(host) == ENVD_PORT
        path: str = scope["path"]
        if path == PREFIX or path.startswith(f"{PREFIX}/"):
            return True
        is_signed_link = path == "/files" and b"signature=" in scope["query_string"]
        return is_signed_link or bool(values_of(scope["headers"], _SANDBOX))

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
            if scope["state"]["status"]:  # what was begun can only be broken off
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
        label = self._label(request.scope)
        is_named = bool(values_of(request.scope["headers"], _SANDBOX))
        may_be_inside = label != _API and Envd.takes(path)
        if may_be_inside and (sandbox_id is not None or path == "/files"):
            return await self._envd.answer(request, sandbox_id, path)
        if label not in (None, _API) or (may_be_inside and is_named):
            raise NotFoundError
        return await self._control.answer(request, path)

    def _refusal(self, error: SandyardError, sandbox_id: str | None, path: str) -> Response:
        answer = error_answer(error, sandbox_id=sandbox_id)
        is_from_inside = Envd.is_rpc(path) and answer.status_code != 502
        return connect.error_response(error) if is_from_inside else answer

    def _sandbox_id(self, scope: Scope) -> str | None:
        label = self._label(scope)
        if label is not None and (found := _LABEL.fullmatch(label)):
            return sandbox_id_of(found[2])
        named = values_of(scope["headers"], _SANDBOX)
        return sandbox_id_of(named[0].decode("latin-1")) if len(named) == 1 else None

    def _other_port(self, scope: Scope) -> int | None:
        if self._label(scope) is not None:
            return None
        sent = values_of(scope["headers"], _PORT)
        port = int(sent[0]) if sent and sent[0].isdigit() else ENVD_PORT
        return None if port == ENVD_PORT else port

    async def _pass(
        self, scope: Scope, receive: Receive, send: Send, *, path: str, host: str
    ) -> None:
        """To a port of the sandbox, as if it had been asked for at that port's host."""
        if self._ports is None:
            raise NotFoundError
        headers = [each for each in scope["headers"] if each[0] != b"host"]
        headers.append((b"host", f"{host}.{self._domain}".encode()))
        raw_path = scope["raw_path"].removeprefix(PREFIX.encode()) or b"/"
        passed = {**scope, "path": path, "raw_path": raw_path, "headers": headers}
        try:
            await self._ports(passed, receive, send)
        except NotFoundError as error:
            raise SandboxGoneError from error

    def _label(self, scope: Scope) -> str | None:
        """What stands before the sandboxes' domain in the host."""
        for host in values_of(scope["headers"], b"host"):
            name = host.decode("latin-1").lower().partition(":")[0]
            if name.endswith(f".{self._domain}"):
                return name.removesuffix(f".{self._domain}")
        return None


def _port_of(label: str) -> int | None:
    found = _LABEL.fullmatch(label)
    return int(found[1]) if found else None
