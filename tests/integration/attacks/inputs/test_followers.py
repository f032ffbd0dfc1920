"""Many followers of one log: they share its reader, and an account has few."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import httpx

from sandyard.e2b_api.envd.connect import frame
from sandyard.kit.concurrency.streams import StreamLimit, TooManyStreamsError
from sandyard.runtime.model import Log, RunId
from sandyard.runtime.programs.followers import LogFollowers
from tests.integration.attacks.inputs.conftest import Yard
from tests.support.platform.sandboxes import act, add_sandbox

RUN = RunId("sandbox", "a", "1")


class WrittenLog:
    """A log in memory that counts how often it is read from its end."""

    def __init__(self) -> None:
        self.content = b"before\n"
        self.is_over = False
        self.reads: Counter[str] = Counter()

    async def read(self, _run_id: RunId, begin: int | None) -> tuple[Log, bool]:
        self.reads["all" if begin is None else "new"] += 1
        await asyncio.sleep(0)
        return Log(begin or 0, self.content[begin or 0 :]), self.is_over


async def collected(pieces: AsyncIterator[Log]) -> bytes:
    return b"".join([piece.content async for piece in pieces])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_crowd_of_followers_has_one_reader() -> None:
    log = WrittenLog()
    followers = LogFollowers(log.read)
    following = [asyncio.create_task(collected(followers.follow(RUN))) for _ in range(500)]
    await until(lambda: log.reads["all"] == 501)
    log.content += b"after\n"
    before = log.reads["new"]
    await until(lambda: log.reads["new"] >= before + 3)
    log.content, log.is_over = log.content + b"end", True
    assert {*await asyncio.gather(*following)} == {b"before\nafter\nend"}
    assert log.reads["all"] == 501
    assert log.reads["new"] < 500


async def test_nobody_reads_when_the_last_follower_has_left() -> None:
    log = WrittenLog()
    followers = LogFollowers(log.read)
    following = asyncio.create_task(collected(followers.follow(RUN)))
    await until(lambda: log.reads["new"] > 0)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    reads = log.reads["new"]
    await asyncio.sleep(0.3)
    assert log.reads["new"] == reads
    again = asyncio.create_task(collected(followers.follow(RUN)))
    await until(lambda: log.reads["new"] > reads)
    log.is_over = True
    assert await again == b"before\n"


async def test_an_account_follows_few_logs_at_a_time(yard: Yard) -> None:
    yard.api.part.guard.streams = StreamLimit(3)
    sandbox = await add_sandbox(yard.api, yard.account)
    await act(yard.api, yard.account, sandbox, "start")
    path = f"/api/v1/sandboxes/{sandbox['sandbox_id']}/commands"
    silent = await yard.call("POST", path, json={"command": "sleep 60", "background": True})
    output = f"{path}/{silent.json()['command_id']}/output?follow=true"
    async with AsyncExitStack() as stack:
        for _ in range(3):
            opening = yard.api.client.stream("GET", output, headers=yard.account.headers)
            assert (await stack.enter_async_context(opening)).status_code == 200
        refused = await yard.call("GET", output)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == TooManyStreamsError.code
        assert (await yard.call("GET", path)).status_code == 200
    await yard.call("DELETE", f"{path}/{silent.json()['command_id']}")


async def test_streams_into_one_sandbox_are_limited(yard: Yard) -> None:
    headers = await yard.create_e2b() | {"Content-Type": "application/connect+json"}
    process = {"cmd": "/bin/sleep", "args": ["60"], "cwd": "/workspace"}
    start = frame({"process": process, "tag": "silent"})
    connect = frame({"process": {"tag": "silent"}})
    following: list[AsyncIterator[bytes]] = []
    crowd = httpx.AsyncClient(base_url=yard.url, limits=httpx.Limits(max_connections=None))
    async with crowd, AsyncExitStack() as stack:
        for number in range(100):
            call = "Connect" if number else "Start"
            opening = crowd.stream(
                "POST",
                f"/e2b/process.Process/{call}",
                content=connect if number else start,
                headers=yard.account.headers | headers,
            )
            answer = await stack.enter_async_context(opening)
            following.append(answer.aiter_bytes())
            await anext(following[-1])
        refused = await yard.call(
            "POST", "/e2b/process.Process/Connect", content=connect, headers=headers
        )
        assert (refused.status_code, refused.json()["code"]) == (429, "resource_exhausted")
