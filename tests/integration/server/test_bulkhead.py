"""Requests that one process passes on to another: as they came, in pieces, and to their end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.entrypoints.server.bulkhead.calls import (
    Answerer,
    BrokenOffError,
    Caller,
    ProcessAwayError,
)
from sandyard.entrypoints.server.bulkhead.channel import Channel, drop_calls, new_pair
from sandyard.entrypoints.server.bulkhead.keeper import Keeper
from sandyard.entrypoints.server.bulkhead.tenants import TenantsProcess
from sandyard.kit.sizes import MESSAGE_BYTES

PIECE = 64 * 1024
HTTP: Scope = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.3"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "https",
    "path": "/a path/ü",
    "raw_path": b"/a%20path/%C3%BC",
    "query_string": b"q=%FF",
    "root_path": "",
    "headers": [(b"host", b"one.example"), (b"x-bytes", b"\xe4\xff"), (b"host", b"two.example")],
    "client": ("192.0.2.7", 4711),
    "server": ("127.0.0.1", 8080),
}
SOCKET: Scope = {**HTTP, "type": "websocket", "subprotocols": ["chat"]}


@asynccontextmanager
async def passed_on_to(app: ASGIApp) -> AsyncIterator[Caller]:
    """What passes requests on to the application, over the sockets that processes use."""
    ours, theirs = new_pair()
    answerer = Answerer(app, app)
    with ours, theirs:
        Channel(theirs).listen(on_call=answerer.accept, on_word=lambda _: None)
        yield Caller(Channel(ours).connect)
        asyncio.get_running_loop().remove_reader(theirs)


class Client:
    """A client that has sent these messages, and sends others when told to."""

    def __init__(self, *messages: Message) -> None:
        self.asked = 0
        self.answers: list[Message] = []
        self.to_send: asyncio.Queue[Message] = asyncio.Queue()
        for each in messages:
            self.to_send.put_nowait(each)

    async def receive(self) -> Message:
        self.asked += 1
        return await self.to_send.get()

    async def send(self, message: Message) -> None:
        self.answers.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.answers)


def piece(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def answer(send: Send, *bodies: bytes) -> None:
    headers = [(b"x-one", b"1"), (b"x-one", b"\xff")]
    await send({"type": "http.response.start", "status": 207, "headers": headers})
    for body in bodies:
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def test_a_request_and_its_response_arrive_as_they_were_sent() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)
        await answer(send, (await receive())["body"].upper())

    client = Client(piece(b"hello"))
    async with passed_on_to(app) as caller:
        await caller({**HTTP, "app": object(), "state": {"x": 1}}, client.receive, client.send)
    assert seen == [{**HTTP, "state": {}}]
    assert client.answers[0]["status"] == 207
    assert client.answers[0]["headers"] == [(b"x-one", b"1"), (b"x-one", b"\xff")]
    assert client.body == b"HELLO"


async def test_a_response_to_a_request_that_was_not_read_arrives() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await answer(send, b"no")

    async with passed_on_to(app) as caller:
        for _ in range(100):
            client = Client(*(piece(bytes(PIECE), more=True) for _ in range(9)), piece(b""))
            await caller(HTTP, client.receive, client.send)
            assert client.body == b"no"


async def test_a_file_that_the_server_reads_itself_ends_a_response() -> None:
    path = {"type": "http.response.pathsend", "path": "/a/file"}

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send(path)

    client = Client(piece(b""))
    async with passed_on_to(app) as caller:
        await caller(HTTP, client.receive, client.send)
    assert client.answers[-1] == path


async def test_large_bodies_pass_whole_and_in_small_pieces() -> None:
    sent = bytes(range(256)) * 4096 * 10

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        pieces, more = [], True
        while more:
            message = await receive()
            pieces.append(message["body"])
            more = message["more_body"]
        await answer(send, b"".join(pieces))

    cuts = range(0, len(sent), 1_000_000)
    client = Client(*(piece(sent[cut : cut + 1_000_000], more=True) for cut in cuts), piece(b""))
    async with passed_on_to(app) as caller:
        await caller(HTTP, client.receive, client.send)
    assert client.body == sent
    assert max(len(each.get("body", b"")) for each in client.answers) <= 128 * 1024


async def test_a_client_whose_request_is_not_read_has_to_wait() -> None:
    is_over = asyncio.Event()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await is_over.wait()
        await answer(send)

    client = Client(*(piece(bytes(PIECE), more=True) for _ in range(1000)))
    async with passed_on_to(app) as caller:
        call = asyncio.create_task(caller(HTTP, client.receive, client.send))
        await until_still(lambda: client.asked)
        held = client.asked * PIECE
        is_over.set()
        await call
    assert held < 4 * 1024 * 1024


async def test_an_application_whose_response_is_not_read_has_to_wait() -> None:
    sent = 0
    is_read = asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": bytes(PIECE), "more_body": True})
            sent += PIECE
        await send({"type": "http.response.body", "body": b""})

    async def send_slowly(_message: Message) -> None:
        await is_read.wait()

    async with passed_on_to(app) as caller:
        call = asyncio.create_task(caller(HTTP, Client(piece(b"")).receive, send_slowly))
        await until_still(lambda: sent)
        held = sent
        is_read.set()
        await call
    assert held < 4 * 1024 * 1024
    assert sent == 1000 * PIECE


async def test_an_application_learns_that_its_client_has_left() -> None:
    left = asyncio.Event()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        left.set()
        await answer(send)

    client = Client(piece(b""))
    async with passed_on_to(app) as caller:
        call = asyncio.create_task(caller(HTTP, client.receive, client.send))
        await client.to_send.put({"type": "http.disconnect"})
        await asyncio.wait_for(left.wait(), 10)
        await call

    left.clear()
    async with passed_on_to(app) as caller:
        call = asyncio.create_task(caller(HTTP, client.receive, client.send))
        await client.to_send.put(piece(b""))
        await until_still(lambda: client.asked)
        call.cancel()
        await asyncio.wait_for(left.wait(), 10)


async def test_nobody_is_told_that_a_response_breaks_off_after_its_client_has_left() -> None:
    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass

    client = Client(piece(b""), {"type": "http.disconnect"})
    async with passed_on_to(app) as caller:
        await caller(HTTP, client.receive, client.send)


async def test_a_frame_larger_than_what_is_held_arrives_behind_a_small_one() -> None:
    large = bytes(MESSAGE_BYTES)

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        for _ in range(4):
            await send({"type": "websocket.send", "text": "small"})
            await send({"type": "websocket.send", "bytes": large})
        await send({"type": "websocket.close", "code": 1000})

    client = Client({"type": "websocket.connect"})
    async with passed_on_to(app) as caller, asyncio.timeout(60):
        await caller(SOCKET, client.receive, client.send)
    assert sum(each.get("bytes") == large for each in client.answers) == 4


@pytest.mark.parametrize("has_started", [False, True])
async def test_a_response_that_breaks_off_is_never_taken_for_a_complete_one(
    has_started: bool,
) -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        if has_started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError

    client = Client(piece(b""))
    async with passed_on_to(app) as caller:
        with pytest.raises(BrokenOffError if has_started else ProcessAwayError):
            await caller(HTTP, client.receive, client.send)


async def test_calls_that_a_dead_process_has_not_accepted_end() -> None:
    ours, theirs = new_pair()
    client = Client(piece(b""))
    with ours, theirs:
        caller = Caller(Channel(ours).connect)
        calls = [asyncio.create_task(caller(HTTP, client.receive, client.send)) for _ in range(500)]
        for _ in range(100):
            await asyncio.sleep(0)
            drop_calls(theirs)
        while not all(call.done() for call in calls):
            await asyncio.sleep(0.01)
            drop_calls(theirs)
    assert {type(call.exception()) for call in calls} == {ProcessAwayError}


async def test_calls_to_a_process_that_is_stalled_do_not_pile_up() -> None:
    ours, theirs = new_pair()
    client = Client(piece(b""))
    with ours, theirs:
        tenants = TenantsProcess(Keeper(0, ours), on_end=lambda: None, hand_over_sec=0.2)
        calls = [
            asyncio.create_task(tenants.caller(HTTP, client.receive, client.send))
            for _ in range(2000)
        ]
        _, waiting = await asyncio.wait(calls, timeout=2)
        refused = [type(call.exception()) for call in calls if call.done()]
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        drop_calls(theirs)
    assert {*refused} == {ProcessAwayError}
    assert len(waiting) < 1000


async def test_messages_of_a_websocket_pass_both_ways_until_it_is_closed() -> None:
    async def echo(_scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept", "subprotocol": "chat"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({**message, "type": "websocket.send"})
        await send({"type": "websocket.close", "code": message["code"]})

    large = bytes(MESSAGE_BYTES)
    messages: list[dict[str, Any]] = [{"text": "ü"}, {"bytes": b""}, {"text": ""}, {"bytes": large}]
    client = Client(
        {"type": "websocket.connect"},
        *({"type": "websocket.receive", **each} for each in messages),
        {"type": "websocket.disconnect", "code": 4001},
    )
    async with passed_on_to(echo) as caller:
        await caller(SOCKET, client.receive, client.send)
    assert client.answers == [
        {"type": "websocket.accept", "subprotocol": "chat"},
        *({"type": "websocket.send", **each} for each in messages),
        {"type": "websocket.close", "code": 4001},
    ]


async def test_a_websocket_of_a_process_that_dies_is_closed_as_restarting() -> None:
    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        raise RuntimeError

    client = Client({"type": "websocket.connect"})
    async with passed_on_to(app) as caller:
        await caller(SOCKET, client.receive, client.send)
    assert client.answers[-1] == {"type": "websocket.close", "code": 1012}


async def until_still(count: Callable[[], int]) -> None:
    """Until it has not changed for a while."""
    last = 0
    while not last or last != count():
        last = count()
        await asyncio.sleep(0.2)
