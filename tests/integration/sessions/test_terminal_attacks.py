"""Terminals of clients that mean harm."""

import asyncio
import hashlib
from typing import Any

import aiohttp
import pytest

from tests.integration.sessions.boxes import Box
from tests.integration.sessions.test_terminal import connected, shown, told

_NO_FAREWELL: Any = aiohttp.ClientWSTimeout(ws_close=0.1)


@pytest.mark.parametrize(
    "origin",
    ["null", "http://[::1", "https://{host}.example", "http://3000-{box}.{host}", "{host}"],
)
async def test_no_other_page_opens_a_terminal(box: Box, origin: str) -> None:
    """Also not with a token, which another page may have got hold of."""
    names = {"host": box.api.client.base_url.netloc.decode(), "box": box.sandbox["sandbox_id"]}
    token = (await box.ask("POST", "/terminal/tokens"))["token"]
    headers = {"Origin": origin.format(**names)}
    async with connected(box, f"?token={token}", headers=headers) as terminal:
        assert (await told(terminal))["code"] == "TERMINAL_ORIGIN_REFUSED"
    assert (await box.ask("GET", "/commands"))["commands"] == []


async def test_a_token_opens_its_own_sandbox_alone(box: Box) -> None:
    token = (await box.ask("POST", "/terminal/tokens"))["token"]
    path = "/sandboxes/sbx-9z9z9z9z9z9z9z9z9"
    async with connected(box, f"?token={token}", headers={}, path=path) as terminal:
        assert (await told(terminal))["code"] == "LOGIN_REQUIRED"


@pytest.mark.parametrize(
    "sent",
    [
        '{"type": "resize", "columns": 0, "rows": 24}',
        '{"type": "resize", "columns": 80, "rows": 65536}',
        '{"type": "resize", "columns": 1e400, "rows": 24}',
        '{"type": "resize", "columns": -1, "rows": 24}',
        '{"type": "resize", "columns": "80; reboot", "rows": 24}',
        '{"type": "resize", "columns": ' + "9" * 5000 + ', "rows": 24}',
        '{"type": "resize"}',
        '{"type": "exit", "exit_code": 0}',
        "[" * 100_000,
        "\0",
    ],
)
async def test_a_size_that_no_screen_has_ends_the_connection(box: Box, sent: str) -> None:
    async with connected(box, "?command=sh&columns=100&rows=30") as terminal:
        command_id = (await told(terminal))["command_id"]
        await terminal.send_str(sent)
        assert (await told(terminal))["code"] == "INVALID_REQUEST"
    async with connected(box, f"?command_id={command_id}") as terminal:
        await told(terminal)
        await terminal.send_bytes(b"stty size\n")
        await shown(terminal, b"30 100")


@pytest.mark.parametrize("query", ["columns=1e9", "rows=-1", "columns=80&rows=70000", "offset=-1"])
async def test_a_terminal_of_such_a_size_is_not_opened(box: Box, query: str) -> None:
    async with connected(box, f"?command=sh&{query}") as terminal:
        assert (await told(terminal))["code"] == "INVALID_REQUEST"
    assert (await box.ask("GET", "/commands"))["commands"] == []


async def test_keys_may_be_any_bytes(box: Box) -> None:
    async with connected(
        box, "?command=stty+raw+-echo%3B+echo+on%3B+head+-c+6+%7C+od+-An+-tx1"
    ) as it:
        await shown(it, b"on")
        await it.send_bytes(b"\xff\xfe\0\xc3\x28\x80")
        await shown(it, b"ff fe 00 c3 28 80")


async def test_thousands_of_small_messages_are_typed_in_order(box: Box) -> None:
    command = "?command=stty+raw+-echo%3B+echo+on%3B+head+-c+2000+%7C+sha256sum"
    async with connected(box, command) as terminal:
        await shown(terminal, b"on")
        for number in range(1000):
            await terminal.send_bytes(b"%02d" % (number % 100))
            await terminal.ping()
        typed = b"".join(b"%02d" % (number % 100) for number in range(1000))
        await shown(terminal, _sha256(typed))


async def test_a_client_that_reads_nothing_is_shown_no_more_than_fits(box: Box) -> None:
    """What it does not take stays with the command, whose oldest output is given up."""
    url = f"{box.api.client.base_url}/api/v1{box.path}/terminal?command=yes"
    async with (
        aiohttp.ClientSession(read_bufsize=1024) as client,
        client.ws_connect(url, headers=box.owner.headers, timeout=_NO_FAREWELL) as terminal,
    ):
        assert terminal._conn is not None
        transport: Any = terminal._conn.transport
        transport.pause_reading()
        await asyncio.sleep(1)
        async with asyncio.timeout(10):
            assert (await box.ask("GET", "/commands"))["commands"][0]["exit_code"] is None


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
