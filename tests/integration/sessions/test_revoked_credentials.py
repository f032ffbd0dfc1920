"""What is open ends soon after the credential that opened it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from tests.integration.sessions.boxes import Box
from tests.integration.sessions.test_terminal import connected, told

SOON_SEC = 30
Revoke = Callable[[Box, dict[str, Any]], Awaitable[object]]


async def delete_key(box: Box, key: dict[str, Any]) -> object:
    return await box.api.call("DELETE", f"/api-keys/{key['key_id']}", box.owner)


async def deactivate_key(box: Box, key: dict[str, Any]) -> object:
    return await box.api.call("POST", f"/api-keys/{key['key_id']}/deactivate", box.owner)


async def log_out(box: Box, _key: dict[str, Any]) -> object:
    return await box.api.call("POST", "/auth/logout", box.owner)


async def pass_a_month(box: Box, _key: dict[str, Any]) -> None:
    box.api.clock.advance(31 * 24 * 3600)


async def new_key(box: Box) -> tuple[dict[str, Any], dict[str, str]]:
    key = await box.api.post("/api-keys", box.owner, {"name": "key", "scope": "run"})
    return key, {"X-API-Key": key["api_key"]}


async def token_of(box: Box, headers: dict[str, str]) -> str:
    path = f"/api/v1{box.path}/terminal/tokens"
    answer = await box.api.client.post(path, headers=headers)
    return str(answer.json()["token"])


@pytest.mark.parametrize("revoke", [delete_key, deactivate_key])
@pytest.mark.parametrize("by_token", [False, True])
async def test_a_terminal_of_a_key(box: Box, revoke: Revoke, by_token: bool) -> None:
    key, headers = await new_key(box)
    query = f"?command=cat&token={await token_of(box, headers)}" if by_token else "?command=cat"
    async with connected(box, query, headers={} if by_token else headers) as terminal:
        assert (await told(terminal))["type"] == "attached"
        await revoke(box, key)
        async with asyncio.timeout(SOON_SEC):
            assert (await told(terminal))["code"] == "LOGIN_REQUIRED"
            closed = await terminal.receive()
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1008)


@pytest.mark.parametrize("revoke", [log_out, pass_a_month])
@pytest.mark.parametrize("by_token", [False, True])
async def test_a_terminal_of_a_login(box: Box, revoke: Revoke, by_token: bool) -> None:
    headers = box.owner.headers
    query = f"?command=cat&token={await token_of(box, headers)}" if by_token else "?command=cat"
    async with connected(box, query, headers={} if by_token else headers) as terminal:
        assert (await told(terminal))["type"] == "attached"
        await revoke(box, {})
        async with asyncio.timeout(SOON_SEC):
            assert (await told(terminal))["code"] == "LOGIN_REQUIRED"


async def test_a_token_of_a_key_that_was_deleted_opens_nothing(box: Box) -> None:
    key, headers = await new_key(box)
    token = await token_of(box, headers)
    await delete_key(box, key)
    async with connected(box, f"?token={token}", headers={}) as terminal:
        assert (await told(terminal))["code"] == "LOGIN_REQUIRED"


async def test_what_holds_stays_open_longer_than_its_token(box: Box) -> None:
    _, headers = await new_key(box)
    token = await token_of(box, headers)
    async with connected(box, f"?command=cat&token={token}", headers={}) as terminal:
        assert (await told(terminal))["type"] == "attached"
        box.api.clock.advance(3600)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(6):
                await told(terminal)
        await terminal.send_bytes(b"still\n")
        assert (await terminal.receive()).type is aiohttp.WSMsgType.BINARY


@pytest.mark.parametrize("path", ["/commands/{command_id}/output?follow=true", "/logs?follow=true"])
async def test_an_answer_that_goes_on(box: Box, path: str) -> None:
    key, headers = await new_key(box)
    command = await box.run("sleep 600", background=True)
    url = f"/api/v1{box.path}{path.format(**command)}"
    async with box.api.client.stream("GET", url, headers=headers) as answer:
        assert answer.status_code == 200
        await delete_key(box, key)
        async with asyncio.timeout(SOON_SEC):
            told = b"".join([each async for each in answer.aiter_bytes()])
        assert b"event: exit" not in told
        assert (b"LOGIN_REQUIRED" in told) == ("/output" in path)
    assert (await box.ask("GET", f"/commands/{command['command_id']}"))["exit_code"] is None
