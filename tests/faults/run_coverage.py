"""What a run with faults must have met: one in which nothing happens is no proof."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from tests.faults.cluster import ADMIN_TOKEN, Replica
from tests.faults.history import History

Told = tuple[str, str | None]
"""A kind of event, and by whom, if that matters."""
QUARANTINED: Told = ("sandbox.quarantined", "job:probe")
RESTORED: Told = ("sandbox.restored", "job:probe")
EVENTS: Sequence[Told] = (
    ("ticket.created", None),
    ("ticket.ready", None),
    ("ticket.served", None),
    ("reservation.filled", None),
    ("lease.probed", None),
)
PROBED: Sequence[Told] = (QUARANTINED, RESTORED)
KILLS = 2
INJECTED = 10
"""So often each fault of the engine."""


@dataclass(slots=True)
class Mix:
    """What has happened so far; `missing` is what the run must go on for."""

    answers: Mapping[tuple[str, int], int]
    """How often an operation must have had this status."""
    history: History
    kills: Callable[[], int]
    injected: Mapping[str, int] = field(default_factory=dict)
    events: Counter[Told] = field(default_factory=Counter)

    def missing(self) -> list[str]:
        had = Counter((each.kind, each.status) for each in self.history.attempts)
        answers = [each for each, wanted in self.answers.items() if had[each] < wanted]
        faults = [each for each, times in self.injected.items() if times < INJECTED]
        kills = ["kill"] if self.kills() < KILLS else []
        return [*map(str, answers), *faults, *kills, *self.untold(EVENTS)]

    def untold(self, events: Sequence[Told]) -> list[str]:
        return [kind for kind, actor in events if not self.events[kind, actor]]

    async def until_told(self, events: Sequence[Told]) -> None:
        """As long as `watch` goes on, and at most until the test's own time is over."""
        while self.untold(events):
            await asyncio.sleep(0.1)

    async def watch(
        self, servers: Sequence[Replica], injected: Callable[[], Awaitable[Mapping[str, int]]]
    ) -> None:
        """Look for what is missing, again and again, at whichever server answers."""
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        async with httpx.AsyncClient(headers=headers, timeout=10) as http:
            while True:
                for server in servers:
                    self.injected = await injected()
                    await self._poll(http, server)
                    await asyncio.sleep(0.2)

    async def _poll(self, http: httpx.AsyncClient, server: Replica) -> None:
        for kind, actor in [each for each in (*EVENTS, *PROBED) if not self.events[each]]:
            wanted = {"kind": kind, "limit": "1"} | ({"actor": actor} if actor else {})
            try:
                answer = await http.get(f"{server.url}/v1/admin/events", params=wanted)
            except httpx.TransportError:
                return
            if answer.status_code == httpx.codes.OK:
                self.events[kind, actor] += len(answer.json()["events"])
