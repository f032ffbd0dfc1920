"""When tickets were seen to wait, by an operator who looks at the queue again and again."""

import asyncio
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import httpx

from tests.faults.cluster import ADMIN_TOKEN, Replica

_PAUSE_SEC = 0.1


@dataclass(slots=True)
class Sightings:
    """Looks at the queue that found a ticket waiting: when each began and had ended, and when the
    ticket's holder had last asked for it."""

    looks: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    asked: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, ticket_id: str, began_ms: int, ended_ms: int, *, asked_at: float = inf) -> None:
        self.looks[ticket_id].append((began_ms, ended_ms))
        self.asked[ticket_id].append((ended_ms, asked_at))

    def was_asked_for(
        self, ticket_id: str, *, before_ms: int, within_ms: int, ttl_sec: float
    ) -> bool:
        """Whether whoever looked at `before_ms` saw a ticket whose holder had asked for it less
        than its time before `within_ms`; others may be passed over."""
        seen = self.asked.get(ticket_id, [])
        last = bisect_left(seen, (before_ms, 0.0)) - 1
        return ttl_sec == inf or (last >= 0 and (seen[last][1] + ttl_sec) * 1000 > within_ms)

    def committed_ms(self, ticket_id: str, written_ms: int) -> float:
        """When the write by which the ticket waits was committed, at the latest: whoever began to
        look after it was made, and saw the ticket wait, saw this write."""
        looks = self.looks.get(ticket_id, [])
        first = bisect_left(looks, (written_ms + 1, 0))
        return min((ended for _, ended in looks[first : first + 1]), default=inf)

    async def watch(self, servers: Sequence[Replica]) -> None:
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        async with httpx.AsyncClient(headers=headers, timeout=10) as http:
            while True:
                for server in servers:
                    await self._poll(http, server)
                    await asyncio.sleep(_PAUSE_SEC)

    async def _poll(self, http: httpx.AsyncClient, server: Replica) -> None:
        parameters = {"limit": "100"}
        while True:
            began_ms = int(time.time() * 1000)
            try:
                answer = await http.get(f"{server.url}/v1/admin/queue", params=parameters)
            except httpx.TransportError:
                return
            if answer.status_code != httpx.codes.OK:
                return
            page, ended_ms = answer.json(), int(time.time() * 1000) + 1
            for each in page["tickets"]:
                if each["sandbox_id"] is None:
                    asked_at = each["asked_at"]
                    self.add(each["ticket_id"], began_ms, ended_ms, asked_at=asked_at)
            if page["next_cursor"] is None:
                return
            parameters["cursor"] = page["next_cursor"]
