"""Creating and changing clients, and counting their leases."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandyard.broker.clients import model
from sandyard.broker.clients.errors import ClientBusyError, ClientNotFoundError
from sandyard.broker.clients.ports import ClientStore
from sandyard.broker.pool.model import OPERATOR, Sandbox, Status
from sandyard.broker.pool.ports import PoolStore
from sandyard.kit import ids
from sandyard.kit.changes.transitions import Cause, Transition, change_entity
from sandyard.kit.clock import Clock
from sandyard.kit.paging import Page, page_in_order

_PAGE = 100
_IN_FLIGHT_SEC = 300
"""A younger slot may belong to a call that still waits for its lease."""

Decide = Callable[[model.Client | None, Cause], Transition[model.Client]]


@dataclass(frozen=True, slots=True)
class TokenUse:
    """A token of a client, without its secret."""

    token_id: str
    created_at: int
    expires_at: int | None
    last_used_at: int | None


@dataclass(slots=True)
class SlotReport:
    freed: int = 0


class Clients:
    def __init__(self, pool: PoolStore, store: ClientStore, *, clock: Clock) -> None:
        self._pool = pool
        self._store = store
        self._clock = clock
        self._lock = asyncio.Lock()

    async def create(
        self, name: str, limits: model.Limits, *, expires_at: int | None, by: str = OPERATOR
    ) -> model.SentToken:
        """Create a client with its first token, which is shown only once. Raises ClientExistsError
        and TokenExpiryPassedError."""
        model.check_expiry(expires_at, int(self._clock.now()))
        await self._change(
            name, by, lambda client, cause: model.decide_created(client, name, limits, cause)
        )
        return await self.add_token(name, expires_at=expires_at, by=by)

    async def change(self, name: str, limits: model.Limits, *, by: str = OPERATOR) -> model.Client:
        """Takes effect in every process within half a minute."""
        return await self._change(
            name, by, lambda client, cause: model.decide_changed(client, limits, cause)
        )

    async def add_token(
        self, name: str, *, expires_at: int | None, by: str = OPERATOR
    ) -> model.SentToken:
        token = model.SentToken(name, ids.token_id(), secrets.token_urlsafe(32))
        await self._change(
            name,
            by,
            lambda client, cause: model.decide_token_added(client, token, expires_at, cause),
        )
        return token

    async def revoke_token(self, name: str, token_id: str, *, by: str = OPERATOR) -> model.Client:
        """Takes effect in every process within half a minute."""
        return await self._change(
            name, by, lambda client, cause: model.decide_token_revoked(client, token_id, cause)
        )

    async def delete(self, name: str, *, by: str = OPERATOR) -> None:
        """Its leases stay until they end; its tokens are refused within half a minute."""
        await self._change(name, by, model.decide_deleted)

    async def page(
        self, *, limit: int, cursor: str | None
    ) -> Page[tuple[model.Client, Sequence[TokenUse]]]:
        clients = await self._store.clients()
        page = page_in_order(
            clients, lambda client: client.name, listing="clients", limit=limit, cursor=cursor
        )
        return Page(await self._with_uses(page.items), page.next_cursor)

    async def _with_uses(
        self, clients: Sequence[model.Client]
    ) -> Sequence[tuple[model.Client, Sequence[TokenUse]]]:
        uses = await self._store.last_uses(
            [token["token_id"] for each in clients for token in each.tokens]
        )
        return [(each, [_use(token, uses) for token in each.tokens]) for each in clients]

    async def get(self, name: str) -> tuple[model.Client, Sequence[TokenUse]]:
        client = await self._store.find_client(name)
        if client is None:
            raise ClientNotFoundError
        uses = await self._store.last_uses([token["token_id"] for token in client.tokens])
        return client, [_use(token, uses) for token in client.tokens]

    async def free_slots(self) -> SlotReport:
        """Free the slots that have no live lease, or whose hold has ended."""
        report = SlotReport()
        now = int(self._clock.now())
        after: tuple[str, str, str] | None = None
        while True:
            slots = await self._store.slots(
                taken_before_ms=(now - _IN_FLIGHT_SEC) * 1000, limit=_PAGE, after=after
            )
            for client, track_id, key in slots:
                if not await is_slot_in_use(self._pool, track_id, key, now=now):
                    await self._store.free_slot(client, (track_id, key))
                    report.freed += 1
            if len(slots) < _PAGE:
                return report
            after = slots[-1]

    async def _change(self, name: str, by: str, decide: Decide) -> model.Client:
        return await change_entity(
            lambda: self._store.find_client(name),
            lambda client: decide(client, Cause.by(by, self._clock)),
            self._pool.apply_together,
            busy=ClientBusyError,
            lock=self._lock,
        )


async def is_slot_in_use(pool: PoolStore, track_id: str, key: str, *, now: int) -> bool:
    """Whether the lease is live, or the replaced sandbox still held, that a slot counts."""
    if (sandbox_id := model.held_sandbox(key)) is not None:
        row = await pool.find(sandbox_id)
        return isinstance(row, Sandbox) and row.status is Status.HELD
    lease = await pool.find_lease(track_id, key)
    return lease is not None and lease.is_live(now)


def _use(token: Mapping[str, Any], uses: Mapping[str, int]) -> TokenUse:
    token_id = str(token["token_id"])
    return TokenUse(token_id, token["created_at"], token.get("expires_at"), uses.get(token_id))
