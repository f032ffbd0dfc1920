"""Tracks that claim, retry and mark at a steady rate, and a record of every response."""

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence

import httpx

from sandyard.tools.gameday.model import Promise
from sandyard.tools.gameday.promises import NO_ANSWER, Supply, Violation, violations
from sandyard.tools.gameday.stage import TRACK_TOKEN, Stage
from sandyard.tools.gameday.workload import RETRY_SEC, Workload

_ASKS_AGAIN = 0.3
_MOST_TRIES = 200
_UNCLEAR = (NO_ANSWER, 503)
_CLEAN_SEC = 120
_AT_ONCE = 20
_NOT_YET_GONE = ("allocated", "pending_deletion", "deletion_failed")


class Tracks(Workload):
    """The load of the Broker, and its audit. Each track has its own id and takes one sandbox."""

    def __init__(self, stage: Stage, pool: int, *, marks: bool) -> None:
        super().__init__(stage.client, [each.url for each in stage.servers])
        self._stage = stage
        self._marks = marks
        self._randomness = random.Random(1)  # noqa: S311
        self._made = 0
        self.supplies = [Supply(0.0, pool)]
        self.held: dict[str, str] = {}
        """The sandbox of each track that has one and has not started to mark it."""
        self.unclear: set[str] = set()
        """Tracks whose claim has no response yet."""

    async def prepare(self) -> None:
        """The pool is filled already."""

    async def run(self, per_second: int, ending: asyncio.Event) -> None:
        await self.start_at_rate(per_second, ending, lambda: self._track(ending))

    async def _track(self, ending: asyncio.Event) -> None:
        self._made += 1
        track = f"track-{self._made}"
        self.unclear.add(track)
        if not await self._claim_until_clear(track, ending):
            return
        if self._randomness.random() < _ASKS_AGAIN:
            await self._claim(track)
        if self._marks:
            await asyncio.sleep(RETRY_SEC)
            await self._mark(track)

    async def _claim_until_clear(
        self, track: str, ending: asyncio.Event, *, is_audit: bool = False
    ) -> bool:
        """Whether it has a sandbox. Like the client, it retries calls that may have been done."""
        for _ in range(_MOST_TRIES):
            status = await self._claim(track, is_audit=is_audit)
            if status not in _UNCLEAR:
                return status in (200, 201)
            if ending.is_set():
                return False
            await asyncio.sleep(RETRY_SEC)
        return False

    async def _claim(self, track: str, *, is_audit: bool = False) -> int:
        answer = await self._post("claim", track, "/v1/allocate", is_audit=is_audit)
        if answer is None:
            return NO_ANSWER
        if answer.status_code not in _UNCLEAR:
            self.unclear.discard(track)
        if answer.is_success:
            self.held[track] = answer.json()["sandbox_id"]
        return answer.status_code

    async def _mark(self, track: str) -> None:
        """Retried until there is a response; after that the track makes no more calls."""
        path = f"/v1/sandboxes/{self.held.pop(track)}/mark-for-deletion"
        for _ in range(_MOST_TRIES):
            answer = await self._post("mark", track, path)
            if answer is not None and answer.status_code not in _UNCLEAR:
                break
            await asyncio.sleep(RETRY_SEC)

    async def _post(
        self, kind: str, track: str, path: str, *, is_audit: bool = False
    ) -> httpx.Response | None:
        headers = {"Authorization": f"Bearer {TRACK_TOKEN}", "X-Track-ID": track}
        return await self.call(kind, track, "POST", path, headers=headers, is_audit=is_audit)

    async def audit(self) -> Sequence[Violation]:
        """Each track claims its lease again and marks it; then cleanup runs until nothing is
        left."""
        turns = asyncio.Semaphore(_AT_ONCE)

        async def give_back(track: str) -> None:
            async with turns:
                if await self._claim_until_clear(track, asyncio.Event(), is_audit=True):
                    await self._mark(track)

        await asyncio.gather(*(give_back(each) for each in [*self.held, *self.unclear]))
        left = await self._await_deletions()
        return [*violations(self.calls, self.supplies), *left]

    async def _await_deletions(self) -> list[Violation]:
        stage = self._stage
        counts: Mapping[str, int] = {}
        for _ in range(_CLEAN_SEC):
            with contextlib.suppress(httpx.HTTPError):
                await stage.admin("POST", "bulk-delete?status=deletion_failed")
                await stage.admin("POST", "cleanup")
                counts, there = await stage.counts(), await stage.provider_has()
                if not any(counts[each] for each in _NOT_YET_GONE) and counts["total"] == there:
                    return []
            await asyncio.sleep(1)
        what = f"after {_CLEAN_SEC} s of cleanup there is {dict(counts)}"
        return [Violation(Promise.NO_LEAK, what)]
