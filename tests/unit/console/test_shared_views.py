"""Who asks together is answered by one drawing, which began after each of them had asked."""

import asyncio

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sandyard.console.live import SharedViews, is_view


def asked(target: str = "pool", method: str = "GET", *, by_htmx: bool = True) -> Request:
    headers = [(b"hx-request", b"true"), (b"hx-target", target.encode())] if by_htmx else []
    scope = {"type": "http", "method": method, "path": "/console/labs", "query_string": b"a=b"}
    return Request(scope | {"headers": headers, "server": ("localhost", 80), "scheme": "http"})


class Pool:
    """Something that is drawn; its drawings are counted, and last until they are let go on."""

    def __init__(self) -> None:
        self.state = 0
        self.drawn = 0
        self.may_end = asyncio.Event()

    async def draw(self) -> Response:
        self.drawn += 1
        seen = self.state
        await self.may_end.wait()
        return HTMLResponse(f"state {seen}", 206, {"Vary": "HX-Request"})


async def test_concurrent_requests_share_one_rendering() -> None:
    pool, views = Pool(), SharedViews(lambda: 0.02)
    pool.may_end.set()
    answers = await asyncio.gather(
        *(views.drawn(asked(), pool.draw) for _ in range(5)), views.drawn(asked("list"), pool.draw)
    )
    assert pool.drawn == 2
    assert {each.body for each in answers} == {b"state 0"}
    assert {(each.status_code, each.headers["vary"]) for each in answers} == {(206, "HX-Request")}
    assert len({id(each) for each in answers}) == len(answers)  # headers may be added to each


@pytest.mark.parametrize("wait_sec", [0, 0.02])
async def test_a_request_during_a_rendering_gets_a_newer_one(wait_sec: float) -> None:
    pool, views = Pool(), SharedViews(lambda: wait_sec)
    first = asyncio.ensure_future(views.drawn(asked(), pool.draw))
    while not pool.drawn:
        await asyncio.sleep(0.005)
    pool.state = 1
    later = asyncio.ensure_future(views.drawn(asked(), pool.draw))
    await asyncio.sleep(0.05)
    pool.may_end.set()
    assert [(await each).body for each in (first, later)] == [b"state 0", b"state 1"]


async def test_a_cancelled_request_cancels_no_other_and_a_failure_is_not_cached() -> None:
    views, failures = SharedViews(lambda: 0.02), [RuntimeError("away")]

    async def draw() -> Response:
        if failures:
            raise failures.pop()
        return HTMLResponse("here")

    gone = asyncio.ensure_future(views.drawn(asked(), draw))
    other = asyncio.ensure_future(views.drawn(asked(), draw))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(RuntimeError, match="away"):
        await other
    assert (await views.drawn(asked(), draw)).body == b"here"


def test_only_reloads_by_htmx_are_views() -> None:
    assert is_view(asked())
    assert not is_view(asked(by_htmx=False))
    assert not is_view(asked(method="POST"))
