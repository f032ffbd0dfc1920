"""An application that is made when it is first called."""

import asyncio
import threading
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.kit.http.on_demand import OnDemandApp


class Maker:
    def __init__(self) -> None:
        self.made_by: list[str] = []
        self.may_end = threading.Event()
        self.paths: list[str] = []

    def __call__(self) -> ASGIApp:
        self.made_by.append(threading.current_thread().name)
        self.may_end.wait(10)
        return self.answer

    async def answer(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        self.paths.append(scope["path"])


async def never(*_message: Any) -> Any:
    raise AssertionError("nothing is sent or received")


async def test_calls_wait_for_one_that_is_made_once_while_others_go_on() -> None:
    make = Maker()
    app = OnDemandApp(make)
    calls = [asyncio.create_task(app({"path": path}, never, never)) for path in ("/a", "/b")]
    while not make.made_by:
        await asyncio.sleep(0.001)
    assert make.paths == []
    make.may_end.set()
    await asyncio.gather(*calls, app.prepare())
    await app({"path": "/c"}, never, never)
    assert make.paths == ["/a", "/b", "/c"]
    assert make.made_by != [threading.current_thread().name]
    assert len(make.made_by) == 1
