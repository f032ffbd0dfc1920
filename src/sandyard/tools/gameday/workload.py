"""The load of a game day on any part, and what its calls have in common."""

import asyncio
import contextlib
import itertools
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import httpx

from sandyard.tools.gameday.promises import LEASED, NO_ANSWER, Call, Violation

RETRY_SEC = 0.5


class Workload(ABC):
    """Calls servers in turn, and records every response."""

    def __init__(self, client: httpx.AsyncClient, urls: Sequence[str]) -> None:
        self._client = client
        self._urls = urls
        self._turns = itertools.cycle(urls)
        self._began_at = time.monotonic()
        self.calls: list[Call] = []

    @property
    def elapsed(self) -> float:
        """Seconds since the load began."""
        return time.monotonic() - self._began_at

    @abstractmethod
    async def prepare(self) -> None:
        """Before the load: accounts, keys, devices."""

    @abstractmethod
    async def run(self, per_second: int, ending: asyncio.Event) -> None: ...

    @abstractmethod
    async def audit(self) -> Sequence[Violation]:
        """After the load: what broke a guarantee, as callers see it."""

    async def close(self) -> None:  # noqa: B027 - most leave nothing
        """End what would outlive the servers, however the game day went."""

    def begin(self) -> None:
        self._began_at = time.monotonic()
        self.calls.clear()

    async def start_at_rate(
        self,
        per_second: int,
        ending: asyncio.Event,
        start: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Open loop: each starts when it is due, regardless of the others; all are awaited."""
        due, tasks = self.elapsed, set[asyncio.Task[None]]()
        while not ending.is_set():
            tasks.add(asyncio.create_task(start()))
            due += 1 / per_second
            await asyncio.sleep(max(0.0, due - self.elapsed))
        await asyncio.gather(*tasks)

    async def call(
        self,
        kind: str,
        who: str,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: Any = None,
        is_audit: bool = False,
    ) -> httpx.Response | None:
        """None if there is no response."""
        url = next(self._turns) + path
        started_at = self.elapsed
        answer: httpx.Response | None = None
        with contextlib.suppress(httpx.HTTPError):
            answer = await self._client.request(method, url, headers=headers, json=body)
        status, text = (NO_ANSWER, "") if answer is None else (answer.status_code, answer.text)
        leased = json.loads(text)["sandbox_id"] if kind == "claim" and status in LEASED else None
        self.calls.append(
            Call(kind, who, status, text, leased, started_at, self.elapsed, is_audit=is_audit)
        )
        return answer

    async def until_answered(self, *call: str, tries: int = 240, **options: Any) -> Any:
        """The content of the first response that is a success; retried like a client does, as long
        as there is none or a 503. None if another error is the response."""
        for _ in range(tries):
            answer = await self.call(*call, **options)
            if answer is not None and answer.is_success:
                return answer.json() if answer.content else {}
            if answer is not None and answer.status_code not in (429, 503):
                return None
            await asyncio.sleep(RETRY_SEC)
        return None
