"""Terminals over WebSockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.integration.sessions.boxes import Box

Socket = aiohttp.ClientWebSocketResponse


@asynccontextmanager
async def connected(
    box: Box, query: str = "", *, headers: dict[str, str] | None = None, path: str | None = None
) -> AsyncIterator[Socket]:
    url = f"{box.api.client.base_url}/api/v1{path or box.path}/terminal{query}"
    sent = box.owner.headers if headers is None else headers
    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(url, headers=sent) as terminal,
        asyncio.timeout(30),
    ):
        yield terminal


async def told(terminal: Socket) -> dict[str, Any]:
    """The next text message; what is shown before it is passed over."""
    async for message in terminal:
        if message.type is aiohttp.WSMsgType.TEXT:
            found: dict[str, Any] = json.loads(message.data)
            return found
    raise AssertionError(terminal.close_code)


async def shown(terminal: Socket, wanted: bytes) -> bytes:
    """What is shown up to these bytes."""
    seen = b""
    async for message in terminal:
        seen += message.data if message.type is aiohttp.WSMsgType.BINARY else b""
        if wanted in seen:
            return seen
    raise AssertionError(seen)


async def test_a_terminal_is_typed_in_and_resized(box: Box) -> None:
    async with connected(box, "?command=sh&columns=100&rows=30") as terminal:
        attached = await told(terminal)
        assert attached["type"] == "attached"
        assert attached["offset"] == 0
        await terminal.send_bytes(b"stty size\n")
        await shown(terminal, b"30 100")
        await terminal.send_json({"type": "resize", "columns": 132, "rows": 50})
        await terminal.send_bytes(b"stty size; echo $TERM\n")
        await shown(terminal, b"xterm-256color")
        await terminal.send_bytes(b"exit 5\n")
        assert await told(terminal) == {"type": "exit", "exit_code": 5}
        assert (await terminal.receive()).type is aiohttp.WSMsgType.CLOSE
    listed = (await box.ask("GET", "/commands"))["commands"]
    assert [each["exit_code"] for each in listed] == [5]


async def test_a_terminal_outlives_its_connection(box: Box) -> None:
    async with connected(box, "?command=sh") as terminal:
        command_id = (await told(terminal))["command_id"]
        await terminal.send_bytes(b"echo o''ne\n")
        await shown(terminal, b"one")
    output = await box.ask("GET", f"/commands/{command_id}/output")
    offset = output["next_offset"]
    async with connected(box, f"?command_id={command_id}&offset={offset}") as terminal:
        assert (await told(terminal))["offset"] == offset
        await terminal.send_bytes(b"echo t''wo\n")
        assert b"one" not in await shown(terminal, b"two")
    async with connected(box, f"?command_id={command_id}") as terminal:
        assert b"one" in await shown(terminal, b"two")


async def test_a_second_visit_attaches_to_the_shell_of_the_first(box: Box) -> None:
    async with connected(box, "?reuse=true") as terminal:
        first = (await told(terminal))["command_id"]
        await terminal.send_bytes(b"here=ye''s; echo o''ne\n")
        await shown(terminal, b"one")
    async with connected(box) as terminal:
        assert (await told(terminal))["command_id"] != first, "a shell of its own, unless asked"
    async with connected(box, "?reuse=true&columns=111&rows=33") as terminal:
        assert (await told(terminal))["command_id"] == first
        await terminal.send_bytes(b"echo still $here; stty size\n")
        assert b"still yes" in await shown(terminal, b"33 111")
        await terminal.send_bytes(b"exit\n")
        assert (await told(terminal))["type"] == "exit"
    async with connected(box, "?reuse=true") as terminal:
        assert (await told(terminal))["command_id"] != first


async def test_a_page_opens_a_terminal_with_a_token(box: Box) -> None:
    token = (await box.ask("POST", "/terminal/tokens"))["token"]
    own_origin = {"Origin": str(box.api.client.base_url)}
    async with connected(box, f"?token={token}", headers=own_origin) as terminal:
        assert (await told(terminal))["type"] == "attached"
    login = {"Authorization": f"Bearer {token}"}
    assert (await box.api.client.get("/api/v1/me", headers=login)).status_code == 401
    box.api.clock.advance(61)
    async with connected(box, f"?token={token}", headers=own_origin) as terminal:
        assert (await told(terminal))["code"] == "LOGIN_REQUIRED"


@pytest.mark.parametrize(
    ("query", "headers", "code"),
    [
        ("", {}, "LOGIN_REQUIRED"),
        ("?token=x", {}, "LOGIN_REQUIRED"),
        ("", {"Origin": "https://elsewhere.example"}, "TERMINAL_ORIGIN_REFUSED"),
        ("?columns=0", None, "INVALID_REQUEST"),
        ("?other=1", None, "INVALID_REQUEST"),
        ("?command_id=unknown", None, "PROCESS_NOT_FOUND"),
        ("?folder=missing", None, "COMMAND_REFUSED"),
    ],
)
async def test_a_terminal_that_cant_be_opened_says_why(
    box: Box, query: str, headers: dict[str, str] | None, code: str
) -> None:
    async with connected(box, query, headers=headers) as terminal:
        assert (await told(terminal))["code"] == code
        closed = await terminal.receive()
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1008)


async def test_what_has_no_terminal_is_not_attached_to(box: Box) -> None:
    started = await box.run(["sleep", "600"], background=True)
    async with connected(box, f"?command_id={started['command_id']}") as terminal:
        assert (await told(terminal))["code"] == "NOT_A_TERMINAL"


async def test_a_message_that_means_nothing_ends_the_connection(box: Box) -> None:
    async with connected(box, "?command=sh") as terminal:
        await told(terminal)
        await terminal.send_str("ls")
        assert (await told(terminal))["code"] == "INVALID_REQUEST"
