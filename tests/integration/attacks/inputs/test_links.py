"""Signed links that name no sandbox: guesses are limited, as each costs a hash per sandbox."""

import asyncio

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from sandyard.e2b_api.envd.connect import SANDBOX_ID, ErrorBoundary
from sandyard.e2b_api.errors import AccessTokenMissingError
from sandyard.e2b_api.links import LinkSigners, UnnamedLinks
from sandyard.e2b_api.tokens import FileLink
from sandyard.kit.errors import RateLimitedError
from sandyard.kit.http.client_address import ClientAddress
from sandyard.kit.rate_limit import RateLimit
from tests.integration.attacks.inputs.conftest import Yard


async def test_guessed_links_are_looked_up_a_few_times() -> None:
    lookups = 0

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal lookups
        lookups += 1
        raise AccessTokenMissingError

    limit = RateLimit("3/hour", "async+memory://", name="links", is_sliding=False)
    links = UnnamedLinks(refuse, limit, address_of=ClientAddress().of)

    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        await links({**scope, SANDBOX_ID: "sbx-a"}, receive, send)

    statuses = {}
    for name, app in (("unnamed", links), ("named", named)):
        transport = httpx.ASGITransport(ErrorBoundary(app))
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            answers = [await client.get("/files?signature=x") for _ in range(5)]
            statuses[name] = [each.status_code for each in answers]
    assert statuses == {"unnamed": [401, 401, 401, 429, 429], "named": [401] * 5}
    assert lookups == 3 + 5


async def test_who_signed_links_is_searched_one_at_a_time_and_once_per_link() -> None:
    signers, at_once, searches = LinkSigners(), 0, 0
    go_on = asyncio.Event()

    async def search() -> str:
        nonlocal at_once, searches
        at_once, searches = at_once + 1, searches + 1
        await go_on.wait()
        assert at_once == 1
        at_once -= 1
        return "sbx-a"

    links = [FileLink(f"/{number}", "read", "user", "v1_x") for number in range(33)]
    finding = [asyncio.create_task(signers.find(link, search)) for link in links[:32]]
    await asyncio.sleep(0)
    with pytest.raises(RateLimitedError):
        await signers.find(links[32], search)
    go_on.set()
    assert set(await asyncio.gather(*finding)) == {"sbx-a"}
    assert [await signers.find(link, search) for link in links[:32]] == ["sbx-a"] * 32
    assert searches == 32


async def test_the_server_limits_them(yard: Yard) -> None:
    answer = await yard.api.client.get("/e2b/files", params={"path": "a", "signature": "v1_x"})
    assert answer.status_code == 401
