"""Tracks that claim, retry and mark at a steady rate, and a record of every response."""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from sandyard.tools.gameday.promises import NO_ANSWER, Call, Kind

_ASKS_AGAIN = 0.3
_PAUSE_SEC = 0.5
_MOST_TRIES = 200
_UNCLEAR = (NO_ANSWER, 503)


@dataclass(slots=True)
class Tracks:
    """The load. Each track has its own id and takes one sandbox."""

    client: httpx.AsyncClient
    urls: Sequence[str]
    token: str
    marks: bool
    began_at: float = field(default_factory=time.monotonic)
    calls: list[Call] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)
    """The sandbox of each track that has one and has not started to mark it."""
    unclear: set[str] = field(default_factory=set)
    """Tracks whose claim has no response yet."""
    made: int = 0
    randomness: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _turn: int = 0

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began_at

    async def run(self, per_second: int, ending: asyncio.Event) -> None:
        """Open loop: a track starts when it is due, regardless of the others."""
        due = self.elapsed
        while not ending.is_set():
            task = asyncio.create_task(self._track(ending))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            due += 1 / per_second
            await asyncio.sleep(max(0.0, due - self.elapsed))
        await asyncio.gather(*self._tasks)

    async def _track(self, ending: asyncio.Event) -> None:
        self.made += 1
        track = f"track-{self.made}"
        self.unclear.add(track)
        if not await self.claim_until_clear(track, ending):
            return
        if self.randomness.random() < _ASKS_AGAIN:
            await self.claim(track)
        if self.marks:
            await asyncio.sleep(_PAUSE_SEC)
            await self.mark(track)

    async def claim_until_clear(
        self, track: str, ending: asyncio.Event, *, is_audit: bool = False
    ) -> bool:
        """Whether it has a sandbox. Like the client, it retries calls that may have been done."""
        for _ in range(_MOST_TRIES):
            status = await self.claim(track, is_audit=is_audit)
            if status not in _UNCLEAR:
                return status in (200, 201)
            if ending.is_set():
                return False
            await asyncio.sleep(_PAUSE_SEC)
        return False

    async def claim(self, track: str, *, is_audit: bool = False) -> int:
        call = await self._call("claim", track, "/v1/allocate", is_audit=is_audit)
        if call.status not in _UNCLEAR:
            self.unclear.discard(track)
        if call.sandbox_id is not None:
            self.held[track] = call.sandbox_id
        return call.status

    async def mark(self, track: str) -> int:
        """Retried until there is a response; after that the track makes no more calls."""
        sandbox_id = self.held.pop(track)
        path = f"/v1/sandboxes/{sandbox_id}/mark-for-deletion"
        for _ in range(_MOST_TRIES):
            call = await self._call("mark", track, path)
            if call.status not in _UNCLEAR:
                break
            await asyncio.sleep(_PAUSE_SEC)
        return call.status

    async def _call(self, kind: Kind, track: str, path: str, *, is_audit: bool = False) -> Call:
        self._turn += 1
        url = self.urls[self._turn % len(self.urls)] + path
        headers = {"Authorization": f"Bearer {self.token}", "X-Track-ID": track}
        started_at = self.elapsed
        try:
            answer = await self.client.post(url, headers=headers)
            status, body = answer.status_code, answer.text
        except httpx.HTTPError:
            status, body = NO_ANSWER, ""
        sandbox_id = json.loads(body)["sandbox_id"] if status in (200, 201) else None
        call = Call(
            kind, track, status, body, sandbox_id, started_at, self.elapsed, is_audit=is_audit
        )
        self.calls.append(call)
        return call
