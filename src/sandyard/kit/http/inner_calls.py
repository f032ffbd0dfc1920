"""Calls of an ASGI application from inside the server, without a client's request."""

import asyncio

from starlette.types import ASGIApp, Message, Scope

from sandyard.kit import ids

INNER = "sandyard.inner"
"""The key in the scope of such a call."""


async def get(app: ASGIApp, path: str) -> tuple[int, bytes]:
    status, body = 0, bytearray()
    messages: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else await asyncio.Future()

    async def send(message: Message) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    await app(_scope(path), receive, send)
    return status, bytes(body)


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
