"""Callers who do everything the API offers, retry like good clients, and write it all down."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from tests.faults.cluster import ADMIN_TOKEN, TRACK_TOKEN, Replica
from tests.faults.history import EXTENSION_MINUTES, Attempt, History

_TRY_SEC = 10.0
_WEIGHTS = {
    "fresh": 26,
    "race": 6,
    "wait": 6,
    "queue": 8,
    "leave": 1,
    "repeat": 22,
    "mark": 14,
    "extend": 10,
    "replace": 7,
    "member": 6,
    "waiting member": 3,
    "reserve": 4,
    "cancel": 1,
    "stranger": 2,
    "get": 8,
    "quarantine": 3,
    "restore": 3,
    "hold": 2,
    "release": 3,
}
COURSE = "course-"
"""How the tracks begin that reservations are for."""
RESERVED_SEC = 15
_JOBS = ("expire", "sync", "cleanup", "sync")
_WAIT_SEC = 3
_POLLS = 6
"""So often a track asks for its ticket before it gives up."""
_PATHS = {
    "mark": "/v1/sandboxes/{}/mark-for-deletion",
    "extend": "/v1/sandboxes/{}/extend",
    "replace": "/v1/sandboxes/{}/replace",
    "get": "/v1/sandboxes/{}",
    "reserve": "/v1/admin/reservations",
    "cancel": "/v1/admin/reservations/{}",
    "quarantine": "/v1/admin/sandboxes/{}/quarantine",
    "restore": "/v1/admin/sandboxes/{}/restore",
    "release": "/v1/admin/sandboxes/{}/release",
    "hold": "/v1/admin/sandboxes/{}/hold",
    "allocate": "/v1/allocate",
    "wait": "/v1/allocate",
    "queue": "/v1/queue",
    "leave": "/v1/queue",
    "cleanup": "/v1/admin/cleanup",
    "expire": "/v1/admin/expire",
    "sync": "/v1/admin/sync",
}


_OPERATOR = ("reserve", "cancel", "restore", "quarantine", "hold")
_METHODS = {"get": "GET", "leave": "DELETE", "cancel": "DELETE"}


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, however many tries it takes."""

    kind: str
    track: str = ""
    key: str = ""
    sandbox_id: str = ""
    """Or the reservation's id, where it is about one."""
    urgency: int | None = None

    @property
    def method(self) -> str:
        return _METHODS.get(self.kind, "POST")

    @property
    def path(self) -> str:
        return _PATHS[self.kind].format(self.sandbox_id)

    @property
    def headers(self) -> dict[str, str]:
        if not self.track:
            key = {"Idempotency-Key": self.key} if self.key else {}
            return {"Authorization": f"Bearer {ADMIN_TOKEN}"} | key
        headers = {"Authorization": f"Bearer {TRACK_TOKEN}", "X-Track-ID": self.track}
        if self.kind == "wait":
            headers["Prefer"] = f"wait={_WAIT_SEC}"
        if self.urgency is not None:
            headers["Priority"] = f"u={self.urgency}"
        return headers | ({"Idempotency-Key": self.key} if self.key else {})

    def body(self, now: float) -> dict[str, Any] | None:
        match self.kind:
            case "extend":
                return {"minutes": EXTENSION_MINUTES}
            case "replace" | "hold":
                return {"reason": "it does not answer"}
            case "reserve":
                return {"count": 2, "track_prefix": COURSE, "to": int(now) + RESERVED_SEC}
        return None


Send = Callable[[Any, Operation], Awaitable[tuple[int | None, bytes]]]
"""Sends it to a replica; returns the status, None if no answer came, and the body."""


@asynccontextmanager
async def over_http() -> AsyncIterator[Send]:
    timeout = aiohttp.ClientTimeout(total=_TRY_SEC)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:

        async def send(replica: Replica, operation: Operation) -> tuple[int | None, bytes]:
            body = operation.body(time.time())
            try:
                async with http.request(
                    operation.method,
                    replica.url + operation.path,
                    headers=operation.headers,
                    json=body,
                ) as answer:
                    return answer.status, await answer.read()
            except (aiohttp.ClientError, TimeoutError, OSError):
                return None, b""

        yield send


@dataclass(slots=True)
class Callers:
    """Carries out operations, some at once, each until it is answered; the seed decides which."""

    replicas: Sequence[Any]
    sandbox_ids: Sequence[str]
    seed: int
    open_calls: Callable[[], AbstractAsyncContextManager[Send]] = over_http
    now: Callable[[], float] = time.time
    history: History = field(default_factory=History)
    begun: int = 0
    done: int = 0
    leases: list[tuple[str, str, str]] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    reservations: list[str] = field(default_factory=list)

    async def run(
        self,
        operations: int,
        *,
        goes_on: Callable[[], bool] = lambda: False,
        at_most: int = 0,
        at_once: int = 20,
    ) -> None:
        """So many operations, and more while `goes_on` says so, but not above `at_most`."""

        def is_more() -> bool:
            return self.begun < operations or (self.begun < at_most and goes_on())

        async with self.open_calls() as send:
            jobs = asyncio.create_task(self._run_jobs(send))
            try:
                async with asyncio.TaskGroup() as group:
                    for number in range(at_once):
                        group.create_task(self._work(send, number, is_more))
            finally:
                jobs.cancel()
                await asyncio.gather(jobs, return_exceptions=True)

    async def _run_jobs(self, send: Send) -> None:
        """An operator who runs every job again and again, as long as the others work."""
        rng = random.Random(f"{self.seed}:jobs")
        for job in itertools.cycle(_JOBS):
            await self._insist(send, Operation(job), rng)
            await asyncio.sleep(rng.uniform(0.5, 2))

    async def _work(self, send: Send, number: int, is_more: Callable[[], bool]) -> None:
        rng = random.Random(f"{self.seed}:{number}")
        step = 0
        while is_more():
            self.begun += 1
            step += 1
            [choice] = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
            chosen = self._operations(choice, rng, f"track-{number}-{step}")
            await asyncio.gather(*(self._insist(send, each, rng) for each in chosen))
            self.done += 1

    def _operations(self, choice: str, rng: random.Random, new_track: str) -> list[Operation]:
        key = rng.choice(["key-a", "key-b", new_track])
        lease = self._known_lease(rng)
        if lease and (about := self._about(choice, lease, rng, new_track)):
            return about
        if choice in _OPERATOR:
            return self._of_operator(choice, rng, new_track)
        match choice:
            case "race":
                return [Operation("allocate", new_track, key)] * 3
            case "wait" | "queue":
                return [Operation(choice, new_track, key, urgency=rng.choice([None, 1]))]
            case "waiting member":
                return [Operation("wait", f"{COURSE}{new_track}", key)]
            case "member":
                return [Operation("allocate", f"{COURSE}{new_track}", key)]
            case "leave":
                return [Operation("queue", new_track, key), Operation("leave", new_track, key)]
        return [Operation("allocate", new_track, key)]

    def _of_operator(self, choice: str, rng: random.Random, new_key: str) -> list[Operation]:
        match choice:
            case "reserve":
                return [Operation("reserve", key=new_key)]
            case "cancel" if self.reservations:
                return [Operation("cancel", sandbox_id=rng.choice(self.reservations))]
            case "restore" if self.quarantined:
                return [Operation("restore", sandbox_id=rng.choice(self.quarantined))]
            case "quarantine" | "hold":
                return [Operation(choice, sandbox_id=rng.choice(self.sandbox_ids))]
        return []

    def _about(
        self, choice: str, lease: tuple[str, str, str], rng: random.Random, new_key: str
    ) -> list[Operation]:
        """What is done with a lease that is known; nothing if the choice is about others."""
        track, key, sandbox_id = lease
        match choice:
            case "repeat":
                return [Operation("allocate", track, key)]
            case "mark" | "get":
                return [Operation(choice, track, sandbox_id=sandbox_id)]
            case "extend" if rng.random() < 0.5:  # one that has little time left to add
                return [Operation("extend", track, f"{new_key}-{n}", sandbox_id) for n in "ab"]
            case "extend":
                return [Operation("extend", track, new_key, sandbox_id)] * rng.choice([1, 2])
            case "replace":
                return [Operation("replace", track, key, sandbox_id)] * rng.choice([1, 2])
            case "stranger":
                return [Operation("mark", "stranger", sandbox_id=sandbox_id)]
            case "release":
                return [Operation("release", sandbox_id=sandbox_id)]
        return []

    def _known_lease(self, rng: random.Random) -> tuple[str, str, str] | None:
        """One of the latest mostly: those are live."""
        if not self.leases:
            return None
        return rng.choice(self.leases[-100:] if rng.random() < 0.8 else self.leases)

    async def _insist(self, send: Send, operation: Operation, rng: random.Random) -> None:
        polls = 0
        while True:
            attempt = await self._try(send, operation, rng.choice(self.replicas))
            self.history.add(attempt)
            if attempt.status is not None and attempt.status < 500:
                self._learn(attempt)
                polls += 1
                if attempt.status != 202 or polls == _POLLS:
                    return
                await asyncio.sleep(0.5)
            await asyncio.sleep(rng.uniform(0.05, 0.3))

    async def _try(self, send: Send, operation: Operation, replica: Any) -> Attempt:
        sent_at = self.now()
        status, body = await send(replica, operation)
        return Attempt(
            operation.kind,
            sent_at,
            self.now(),
            status,
            track=operation.track,
            key=operation.key,
            sandbox_id=operation.sandbox_id,
            body=orjson.loads(body or b"{}"),
        )

    def _learn(self, attempt: Attempt) -> None:
        if attempt.is_lease:
            self.leases.append((attempt.track, attempt.key, attempt.body["sandbox_id"]))
        elif attempt.kind == "quarantine" and attempt.status == 200:
            self.quarantined.append(attempt.sandbox_id)
        elif attempt.kind == "reserve" and attempt.status == 201:
            self.reservations.append(attempt.body["reservation_id"])
