"""How envd's messages are framed, and how what fails is named."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from sandyard.kit.sizes import MESSAGE_BYTES
from sandyard.runtime.remote.backoff import Backoff
from sandyard.runtime.remote.envd import Envd
from sandyard.runtime.remote.errors import CallError
from sandyard.runtime.remote.http import HttpCaller, HttpPool

LAST = 2


def frame(message: dict[str, Any], flags: int = 0) -> bytes:
    body = json.dumps(message).encode()
    return bytes([flags]) + len(body).to_bytes(4, "big") + body


@asynccontextmanager
async def envd_that(respond: Any) -> AsyncIterator[Envd]:
    """envd of a machine whose server responds so to everything."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    backoff, url = Backoff(), f"http://127.0.0.1:{runner.addresses[0][1]}"
    pool = HttpPool(backoff)
    try:
        yield Envd(HttpCaller(pool, url, {}, backoff))
    finally:
        await pool.close()
        await runner.cleanup()


async def streamed(*pieces: bytes) -> list[Any]:
    """The messages of a stream whose content arrives in these pieces."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    async with envd_that(respond) as envd:
        return [message async for message in envd.stream("a.A/Do", {})]


async def failure(status: int, body: Any, **headers: str) -> CallError:
    async def respond(_request: web.Request) -> web.Response:
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text, headers=headers)

    async with envd_that(respond) as envd:
        with pytest.raises(CallError) as raised:
            await envd.call("a.A/Do", {}, within_sec=10)
    return raised.value


async def test_messages_are_read_however_the_stream_is_cut() -> None:
    content = frame({"n": 1}) + frame({"n": 2, "text": "ü"}) + frame({}, LAST)
    expected = [{"n": 1}, {"n": 2, "text": "ü"}]
    assert await streamed(content) == expected
    assert await streamed(*(content[at : at + 1] for at in range(len(content)))) == expected


async def test_large_messages_are_read_and_larger_ones_are_refused() -> None:
    large = {"text": "x" * (MESSAGE_BYTES - 100)}
    assert await streamed(frame(large) + frame({}, LAST)) == [large]

    async def respond_without_end(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(bytes(2**20))

    async with envd_that(respond_without_end) as envd:
        with pytest.raises(CallError, match="too large"):
            await envd.call("a.A/Do", {}, within_sec=60)


@pytest.mark.parametrize(
    ("content", "trouble"),
    [
        (frame({"error": {"code": "not_found", "message": "no path"}}, LAST), "not_found"),
        (frame({"error": {"code": "unavailable"}}, LAST), "unreachable"),
        (frame({"n": 1}), "unreachable"),
        (b"\0\0\0\0\1[", "failed"),
        (b"\0\xff\xff\xff\xff", "failed"),
    ],
)
async def test_a_stream_that_fails_or_breaks_off_says_so(content: bytes, trouble: str) -> None:
    with pytest.raises(CallError) as raised:
        await streamed(content)
    assert raised.value.trouble == trouble


@pytest.mark.parametrize(
    ("status", "body", "trouble"),
    [
        (401, {"code": 401, "message": "wrong"}, "key_refused"),
        (404, {"message": "none"}, "not_found"),
        (429, {}, "rate_limited"),
        (500, "<h1>Oops</h1>", "failed"),
        (502, {"message": "The sandbox was not found"}, "unreachable"),
        (502, {"message": "port is not open"}, "unreachable"),
        (503, {"code": 503, "message": "no capacity"}, "unreachable"),
        (504, "<h1>Oops</h1>", "timeout"),
        (500, {"code": "internal", "message": "broken pipe"}, "other"),
        (507, {"message": "full"}, "other"),
        (200, "no JSON", "failed"),
    ],
)
async def test_a_failed_call_is_named_by_who_responded(
    status: int, body: Any, trouble: str
) -> None:
    assert (await failure(status, body)).trouble == trouble


@pytest.mark.parametrize(("named", "seconds"), [("17", 17), ("soon", 5), ("-1", 5), ("9" * 11, 5)])
async def test_the_time_to_wait_is_what_the_response_names(named: str, seconds: int) -> None:
    assert (await failure(429, {}, **{"Retry-After": named})).retry_after == seconds
