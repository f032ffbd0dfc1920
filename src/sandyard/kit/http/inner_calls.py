"""Calls of an ASGI application from inside the server."""

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Scope

from sandyard.kit import ids

INNER = "sandyard.inner"
"""The key in the scope of a call that no client has made."""


@dataclass(frozen=True, slots=True)
class InnerResponse:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


async def exchange(app: ASGIApp, scope: Scope, body: bytes = b"") -> InnerResponse:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    begun: Message = {"status": 0, "headers": []}
    pieces: list[bytes] = []

    async def receive() -> Message:
        return messages.pop() if messages else await asyncio.Future()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            begun.update(message)
        else:
            pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    return InnerResponse(begun["status"], list(begun["headers"]), b"".join(pieces))


async def get(app: ASGIApp, path: str) -> tuple[int, bytes]:
    """By no client's request."""
    found = await exchange(app, _scope(path))
    return found.status, found.body


def _scope(path: str) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 0),
        INNER: True,
        "state": {"request_id": ids.request_id(), "status": 0},
    }


def scope_within(outer: Scope, method: str, path: str, **changed: Any) -> Scope:
    """Of a call that a client's request needs, with its address and request id."""
    return {
        **outer,
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "state": {**outer["state"], "status": 0, "log": {}},
        **changed,
    }


def origin_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Headers with the origin of a request, for limits by address."""
    names = {b"host", b"user-agent", b"x-forwarded-for"}
    return [header for header in scope["headers"] if header[0] in names]
