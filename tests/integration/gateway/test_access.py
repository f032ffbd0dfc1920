"""Who may pass: private unless it is public, by a link, a header or a cookie of that host."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import jwt
import orjson
import pytest

from sandyard.gateway.model import PageScope
from sandyard.kit.clock import utc_time
from sandyard.kit.http.access_watch import CHECK_EVERY_SEC
from tests.fakes.gateway_targets import Handler, Owner, OwnersKey
from tests.integration.gateway.programs import Seen, answering, in_box, page, read_request
from tests.integration.gateway.test_websockets import echo, opened, refused, socket_in_box
from tests.support.servers.gateway import BOX, OTHER_BOX, OWNER, STRANGER, Answer, GatewayServer

COOKIE = "__Host-sandyard"


def code_of(answer: Answer) -> tuple[int, str]:
    return answer.status, orjson.loads(answer.body)["error"]["code"]


def header(token: str) -> list[tuple[str, str]]:
    return [("X-Access-Token", token)]


async def cookie_of(server: GatewayServer, **changes: Any) -> str:
    answer = await server.request(path=f"/?sandyard_token={server.token(**changes)}")
    assert answer.status == 303, answer.body
    return cookie_in(answer)


def cookie_in(answer: Answer) -> str:
    name, _, value = (answer.header("set-cookie") or "").partition(";")[0].partition("=")
    assert name == COOKIE
    return value


async def test_a_private_sandbox_looks_like_an_unknown_one(server: GatewayServer) -> None:
    """A private sandbox looks like one that there is not, whatever state it is in."""
    async with in_box(server, answering(page("secret")), is_public=False):
        private = await server.request()
        unknown = await server.request(host=server.host(OTHER_BOX))
        server.boxes.add(BOX, OWNER, port=3000, at=1, is_running=False)
        stopped = await server.request()
    for answer in (private, unknown, stopped):
        assert code_of(answer) == (404, "ADDRESS_UNKNOWN")
        told = orjson.loads(answer.body)["error"]
        assert told["message"] == orjson.loads(unknown.body)["error"]["message"]


async def test_an_invalid_token_is_401_for_known_and_unknown_sandboxes(
    server: GatewayServer,
) -> None:
    async with in_box(server, answering(page("secret")), is_public=False):
        for host in (server.host(), server.host(OTHER_BOX)):
            answer = await server.request(host=host, headers=header("sat-nonsense"))
            assert code_of(answer) == (401, "ACCESS_TOKEN_INVALID")


async def test_the_header_opens_it_and_stays_with_the_gateway(server: GatewayServer) -> None:
    seen = Seen()
    async with in_box(server, answering(page("secret"), seen), is_public=False):
        answer = await server.request(headers=header(server.token()))
    assert answer.body == b"secret"
    assert seen.header("x-access-token") is None


async def test_a_programs_own_header_of_that_name_reaches_it(server: GatewayServer) -> None:
    seen = Seen()
    async with in_box(server, answering(page("ok"), seen)):
        await server.request(headers=header("of the program"))
    assert seen.header("x-access-token") == "of the program"


async def test_a_link_becomes_a_cookie_of_that_host(server: GatewayServer) -> None:
    seen = Seen()
    async with in_box(server, answering(page("secret"), seen), is_public=False):
        link = f"/a/b?x=1&sandyard_token={server.token()}&y=2"
        answer = await server.request(path=link)
        assert (answer.status, answer.header("location")) == (303, "/a/b?x=1&y=2")
        set_cookie = answer.header("set-cookie") or ""
        for attribute in ("Path=/", "Secure", "HttpOnly", "SameSite=None", "Partitioned"):
            assert attribute in set_cookie
        assert "Domain" not in set_cookie
        cookie = cookie_in(answer)
        opened = await server.request(
            path="/a/b", headers=[("Cookie", f"own=1; {COOKIE}={cookie}; other=2")]
        )
    assert opened.body == b"secret"
    assert seen.header("cookie") == "own=1; other=2"


async def test_a_link_to_two_slashes_leads_nowhere_else(server: GatewayServer) -> None:
    async with in_box(server, answering(page("")), is_public=False):
        answer = await server.request(path=f"//evil.example/?sandyard_token={server.token()}")
    assert answer.header("location") == "/evil.example/"


@pytest.mark.parametrize(
    "changes",
    [
        {"target_id": OTHER_BOX},
        {"port": 4000},
        {"account_id": STRANGER},
        {"token_version": 7},
        {"scopes": frozenset({PageScope.STATUS})},
    ],
)
async def test_a_token_for_something_else_opens_nothing(
    server: GatewayServer, changes: dict[str, Any]
) -> None:
    async with in_box(server, answering(page("secret")), is_public=False):
        answer = await server.request(headers=header(server.token(**changes)))
    assert code_of(answer) == (401, "ACCESS_TOKEN_INVALID")


async def test_credentials_of_another_sandbox_are_refused(server: GatewayServer) -> None:
    """Wherever it is sent, and whoever's: the other one may be the caller's own."""
    async with in_box(server, answering(page("mine")), target_id=OTHER_BOX, is_public=False):
        link = f"/?sandyard_token={server.token(OTHER_BOX)}"
        answer = await server.request(path=link, host=server.host(OTHER_BOX))
        sent = [("Cookie", f"{COOKIE}={cookie_in(answer)}")]
        assert (await server.request(host=server.host(OTHER_BOX), headers=sent)).body == b"mine"
        async with in_box(server, answering(page("secret")), is_public=False):
            e2b = [("E2b-Traffic-Access-Token", server.token(OTHER_BOX))]
            origin = ("Origin", f"http://{server.host()}")
            for headers in (sent, [*sent, origin], e2b, header(server.token(OTHER_BOX))):
                assert (await server.request(headers=headers)).status == 401
                assert (await server.request("POST", headers=headers)).status == 401
            assert (await server.request(path=link)).status == 401
            assert await refused(opened(server, link, additional_headers=dict(sent))) == 401


@pytest.mark.parametrize("algorithm", ["none", "HS512"])
async def test_a_token_of_another_kind_of_signature_opens_nothing(
    server: GatewayServer, algorithm: str
) -> None:
    claims = jwt.decode(server.token().removeprefix("sat-"), options={"verify_signature": False})
    key = "" if algorithm == "none" else "k" * 64
    forged = "sat-" + jwt.encode(claims, key, algorithm=algorithm)
    async with in_box(server, answering(page("secret")), is_public=False):
        assert (await server.request(headers=header(forged))).status == 401


async def test_a_token_ends_at_its_time_and_with_its_owners_logins(
    server: GatewayServer,
) -> None:
    token = server.token(expires_at=utc_time(server.clock.now()) + timedelta(minutes=1))
    async with in_box(server, answering(page("secret")), is_public=False):
        assert (await server.request(headers=header(token))).status == 200
        server.clock.advance(61)
        assert (await server.request(headers=header(token))).status == 401
        fresh = server.token()
        server.owners.owners[OWNER] = Owner(token_version=1)
        assert (await server.request(headers=header(fresh))).status == 401
        server.owners.owners[OWNER] = Owner(is_active=False)
        assert (await server.request(headers=header(fresh))).status == 401


async def test_a_cookie_is_no_token_and_holds_for_its_port_alone(server: GatewayServer) -> None:
    async with in_box(server, answering(page("secret")), is_public=False):
        cookie = await cookie_of(server)
        assert (await server.request(headers=header(cookie))).status == 401
        sent = [("Cookie", f"{COOKIE}={cookie}")]
        assert (await server.request(headers=sent)).status == 200
        assert (await server.request(host=server.host(port=4000), headers=sent)).status == 401
        planted = [("Cookie", f"{COOKIE}={server.token()}")]
        assert (await server.request(headers=planted)).status == 401
        twice = [("Cookie", f"{COOKIE}={cookie}; {COOKIE}={cookie}")]
        assert (await server.request(headers=twice)).status == 401


async def test_a_program_sets_no_cookie_of_the_gateways_name(server: GatewayServer) -> None:
    said = page("ok", f"Set-Cookie: {COOKIE}=x; Secure; Path=/", "Set-Cookie: own=1")
    async with in_box(server, answering(said)):
        answer = await server.request()
    assert answer.header("set-cookie") == "own=1"


async def test_with_the_cookie_only_its_own_pages_may_write(server: GatewayServer) -> None:
    seen = Seen()
    async with in_box(server, answering(page("done"), seen), is_public=False):
        cookie = ("Cookie", f"{COOKIE}={await cookie_of(server)}")
        own = ("Origin", f"http://{server.host()}")
        foreign = ("Origin", f"http://{server.host(OTHER_BOX)}")
        for sent in ([cookie], [cookie, foreign], [cookie, ("Origin", "null")]):
            answer = await server.request("POST", headers=sent)
            assert code_of(answer) == (403, "ORIGIN_REFUSED")
        assert not seen.arrived.is_set()
        assert (await server.request("POST", headers=[cookie, own])).status == 200
        with_token = [foreign, *header(server.token())]
        assert (await server.request("POST", headers=with_token)).status == 200


async def test_a_websocket_needs_the_same(server: GatewayServer) -> None:
    async with socket_in_box(server, echo, is_public=False):
        cookie = {"Cookie": f"{COOKIE}={await cookie_of(server)}"}
        own, foreign = f"http://{server.host()}", f"http://{server.host(OTHER_BOX)}"
        assert await refused(opened(server)) == 404
        assert await refused(opened(server, additional_headers=cookie)) == 403
        assert await refused(opened(server, additional_headers=cookie, origin=foreign)) == 403
        by_link = f"/?sandyard_token={server.token()}"
        for attempt in (
            opened(server, additional_headers=cookie, origin=own),
            opened(server, by_link),
        ):
            async with attempt as socket:
                await socket.send("in")
                assert await socket.recv() == "in"


def endless(seen: Seen) -> Handler:
    """Answers, and goes on until it is left."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, seen)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"secret")
                await writer.drain()
                await asyncio.sleep(0.1)
        finally:
            writer.transport.abort()
            seen.left.set()

    return handle


async def test_a_token_and_its_cookie_end_with_the_key_that_requested_it(
    server: GatewayServer,
) -> None:
    key = server.owners.keys["key-1"] = OwnersKey(server.owners.owners[OWNER])
    token = server.token(key_id="key-1")
    async with in_box(server, answering(page("secret")), is_public=False):
        cookie = [("Cookie", f"{COOKIE}={await cookie_of(server, key_id='key-1')}")]
        for sent in (header(token), cookie):
            assert (await server.request(headers=sent)).status == 200
        key.is_valid = False
        for sent in (header(token), cookie):
            assert (await server.request(headers=sent)).status == 401
        key.is_valid = True
        assert (await server.request(headers=cookie)).status == 200
        del server.owners.keys["key-1"]
        assert (await server.request(headers=cookie)).status == 401


def make_private(server: GatewayServer) -> None:
    server.boxes.boxes[BOX] = replace(server.boxes.boxes[BOX], is_public=False)


def end_logins(server: GatewayServer) -> None:
    server.owners.owners[OWNER] = Owner(token_version=1)


def deactivate(server: GatewayServer) -> None:
    server.owners.owners[OWNER] = Owner(is_active=False)


@pytest.mark.parametrize(
    ("revoke", "is_public"), [(make_private, True), (end_logins, False), (deactivate, False)]
)
async def test_a_response_ends_soon_after_access_ends(
    server: GatewayServer, revoke: Callable[[GatewayServer], None], *, is_public: bool
) -> None:
    seen = Seen()
    async with asyncio.timeout(20), in_box(server, endless(seen), is_public=is_public):
        sent = [] if is_public else header(server.token())
        responding = asyncio.create_task(server.request(headers=sent))
        await seen.arrived.wait()
        revoke(server)
        answer = await responding
        await seen.left.wait()
    assert (answer.status, answer.is_whole) == (200, False)


async def test_a_response_outlasts_its_token(server: GatewayServer) -> None:
    """An expired token opens nothing new; what it has opened stays open."""
    seen = Seen()
    async with in_box(server, endless(seen), is_public=False):
        responding = asyncio.create_task(server.request(headers=header(server.token())))
        await seen.arrived.wait()
        server.clock.advance(600)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(responding, CHECK_EVERY_SEC + 2)
        await seen.left.wait()
