"""E2B's API as an ASGI application: which of its requests are for the control API, for a sandbox's
own API, or for another port of a sandbox."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.e2b_api.envd.connect import SANDBOX_ID, ErrorBoundary
from sandyard.e2b_api.envd.paths import is_for_machine, path_of
from sandyard.e2b_api.errors import SandboxGoneError
from sandyard.e2b_api.hosts import (
    API,
    ENVD_PORT,
    LABEL,
    PREFIX,
    SANDBOX,
    E2bHosts,
    is_below_prefix,
)
from sandyard.e2b_api.model import PLATFORM_STATUSES, sandbox_id_of
from sandyard.kit.errors import NotFoundError
from sandyard.kit.http.security import RawHeaders, values_of

_PORT = b"e2b-sandbox-port"
_PRIVATE = {
    b"cache-control": b"private, no-store",
    b"content-security-policy": b"sandbox; default-src 'none'; frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
    b"vary": b"E2b-Sandbox-Id, E2b-Sandbox-Port, X-Access-Token, X-API-Key, Authorization",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}
_REPLACED = frozenset(
    {*_PRIVATE, b"set-cookie", b"clear-site-data", b"expires", b"strict-transport-security"}
)
_LABEL = "e2b.label"
"""The name, in an ASGI scope, of the part of the host before the sandboxes' domain."""


class E2bApi:
    """Serves the requests that its `E2bHosts` accept."""

    def __init__(
        self, control: ASGIApp, envd: ASGIApp, *, hosts: E2bHosts, ports: ASGIApp | None = None
    ) -> None:
        """`ports` serves the other ports of sandboxes, by host."""
        self._control = control
        self._envd = envd
        self._hosts = hosts
        self._ports = ports
        self._boundary = ErrorBoundary(self._serve, PLATFORM_STATUSES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Headers name a sandbox below `/e2b` and at the sandboxes' hosts only."""
        is_below = is_below_prefix(scope["path"])
        label = self._hosts.label(scope)
        sandbox_id = _sandbox_id(label, scope) if is_below or label is not None else None
        root = PREFIX if is_below else ""
        own = {**scope, "root_path": root, _LABEL: label, SANDBOX_ID: sandbox_id}

        async def send_private(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _private(message["headers"])
            await send(message)

        await self._boundary(own, receive, send_private)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """SDKs of 2025 name the sandbox in calls to the control API too."""
        label, sandbox_id, path = scope[_LABEL], scope[SANDBOX_ID], path_of(scope)
        may_be_inside = label != API and is_for_machine(path)
        if sandbox_id and label is None and (port := _port(scope)) != ENVD_PORT:
            await self._pass(scope, receive, send, path=path, host=f"{port}-{sandbox_id}")
        elif may_be_inside and (sandbox_id is not None or path == "/files"):
            await self._envd(scope, receive, send)
        elif label not in (None, API) or (may_be_inside and values_of(scope["headers"], SANDBOX)):
            raise NotFoundError
        else:
            await self._control(scope, receive, send)

    async def _pass(
        self, scope: Scope, receive: Receive, send: Send, *, path: str, host: str
    ) -> None:
        """Forwards to a port of the sandbox, as if the request came to that port's host. Cookies
        are the console's."""
        if self._ports is None:
            raise NotFoundError
        headers = [each for each in scope["headers"] if each[0] not in (b"host", b"cookie")]
        headers.append((b"host", f"{host}.{self._hosts.domain}".encode()))
        raw_path = scope["raw_path"].removeprefix(scope["root_path"].encode()) or b"/"
        passed = {"path": path, "raw_path": raw_path, "root_path": "", "headers": headers}
        try:
            await self._ports({**scope, **passed}, receive, send)
        except NotFoundError as error:
            raise SandboxGoneError from error


def _private(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """At the console's origin, content of sandboxes is not cached, runs no script and sets no
    cookie, whatever a program's own headers say."""
    return [*(each for each in headers if each[0].lower() not in _REPLACED), *_PRIVATE.items()]


def _sandbox_id(label: str | None, scope: Scope) -> str | None:
    if label is not None and (found := LABEL.fullmatch(label)):
        return sandbox_id_of(found[2])
    named = values_of(scope["headers"], SANDBOX)
    return sandbox_id_of(named[0].decode("latin-1")) if len(named) == 1 else None


def _port(scope: Scope) -> int:
    sent = values_of(scope["headers"], _PORT)
    return int(sent[0]) if sent and sent[0].isdigit() else ENVD_PORT
