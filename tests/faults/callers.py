"""Callers who do everything the API offers, retry like good clients, and write it all down."""

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp
import orjson

from tests.faults.cluster import ADMIN_TOKEN, TRACK_TOKEN, Replica
from tests.faults.history import Attempt, History

_PATIENCE_SEC = 12.0
_TRY_SEC = 10.0
_WEIGHTS = {
    "fresh": 32,
    "race": 6,
    "repeat": 24,
    "mark": 14,
    "stranger": 2,
    "get": 10,
    "quarantine": 4,
    "restore": 4,
    "release": 3,
}
_JOBS = ("expire", "cleanup", "expire", "cleanup", "sync")
_PATHS = {
    "mark": "/v1/sandboxes/{}/mark-for-deletion",
    "get": "/v1/sandboxes/{}",
    "quarantine": "/v1/admin/sandboxes/{}/quarantine",
    "restore": "/v1/admin/sandboxes/{}/restore",
    "release": "/v1/admin/sandboxes/{}/release",
    "allocate": "/v1/allocate",
    "cleanup": "/v1/admin/cleanup",
    "expire": "/v1/admin/expire",
    "sync": "/v1/admin/sync",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, however many tries it takes."""

    kind: str
    track: str = ""
    key: str = ""
    sandbox_id: str = ""

    @property
    def path(self) -> str:
        return _PATHS[self.kind].format(self.sandbox_id)

    @property
    def headers(self) -> dict[str, str]:
        if not self.track:
            return {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        headers = {"Authorization": f"Bearer {TRACK_TOKEN}", "X-Track-ID": self.track}
        return headers | ({"Idempotency-Key": self.key} if self.key else {})


@dataclass(slots=True)
class Callers:
    """Carries out a given number of operations, some at once, in an order that the seed decides."""

    replicas: Sequence[Replica]
    sandbox_ids: Sequence[str]
    seed: int
    history: History = field(default_factory=History)
    done: int = 0
    unanswered: int = 0
    leases: list[tuple[str, str, str]] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)

    async def run(self, operations: int, *, at_once: int = 20) -> None:
        timeout = aiohttp.ClientTimeout(total=_TRY_SEC)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            share = -(-operations // at_once)
            jobs = asyncio.create_task(self._run_jobs(http))
            try:
                async with asyncio.TaskGroup() as group:
                    for number in range(at_once):
                        group.create_task(self._work(http, number, share))
            finally:
                jobs.cancel()
                await asyncio.gather(jobs, return_exceptions=True)

    async def _run_jobs(self, http: aiohttp.ClientSession) -> None:
        """An operator who runs every job again and again, as long as the others work."""
        rng = random.Random(f"{self.seed}:jobs")
        for job in itertools.cycle(_JOBS):
            await self._insist(http, Operation(job), rng)
            await asyncio.sleep(rng.uniform(0.5, 2))

    async def _work(self, http: aiohttp.ClientSession, number: int, operations: int) -> None:
        rng = random.Random(f"{self.seed}:{number}")
        for step in range(operations):
            [choice] = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
            chosen = self._operations(choice, rng, f"track-{number}-{step}")
            await asyncio.gather(*(self._insist(http, each, rng) for each in chosen))
            self.done += 1

    def _operations(self, choice: str, rng: random.Random, new_track: str) -> list[Operation]:
        key = rng.choice(["key-a", "key-b", new_track])
        track, old_key, sandbox_id = self._known_lease(rng) or (new_track, key, "")
        match choice:
            case "fresh":
                return [Operation("allocate", new_track, key)]
            case "race":
                return [Operation("allocate", new_track, key)] * 3
            case "repeat":
                return [Operation("allocate", track, old_key)]
            case "mark" | "get" if sandbox_id:
                return [Operation(choice, track, sandbox_id=sandbox_id)]
            case "stranger" if sandbox_id:
                return [Operation("mark", "stranger", sandbox_id=sandbox_id)]
            case "release" if sandbox_id:
                return [Operation("release", sandbox_id=sandbox_id)]
            case "quarantine":
                return [Operation("quarantine", sandbox_id=rng.choice(self.sandbox_ids))]
            case "restore" if self.quarantined:
                return [Operation("restore", sandbox_id=rng.choice(self.quarantined))]
        return [Operation("allocate", new_track, key)]

    def _known_lease(self, rng: random.Random) -> tuple[str, str, str] | None:
        """One of the latest mostly: those are live."""
        if not self.leases:
            return None
        return rng.choice(self.leases[-100:] if rng.random() < 0.8 else self.leases)

    async def _insist(
        self, http: aiohttp.ClientSession, operation: Operation, rng: random.Random
    ) -> None:
        deadline = time.monotonic() + _PATIENCE_SEC
        while time.monotonic() < deadline:
            attempt = await self._try(http, operation, rng.choice(self.replicas))
            self.history.add(attempt)
            if attempt.status is not None and attempt.status < 500:
                self._learn(attempt)
                return
            await asyncio.sleep(rng.uniform(0.05, 0.3))
        self.unanswered += 1

    async def _try(
        self, http: aiohttp.ClientSession, operation: Operation, replica: Replica
    ) -> Attempt:
        method = "GET" if operation.kind == "get" else "POST"
        status, body, sent_at = None, b"{}", time.time()
        try:
            url = replica.url + operation.path
            async with http.request(method, url, headers=operation.headers) as answer:
                body = await answer.read()
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            body = b"{}"
        return Attempt(
            operation.kind,
            sent_at,
            time.time(),
            status,
            track=operation.track,
            key=operation.key,
            sandbox_id=operation.sandbox_id,
            body=orjson.loads(body),
        )

    def _learn(self, attempt: Attempt) -> None:
        if attempt.is_lease:
            self.leases.append((attempt.track, attempt.key, attempt.body["sandbox_id"]))
        elif attempt.kind == "quarantine" and attempt.status == 200:
            self.quarantined.append(attempt.sandbox_id)
