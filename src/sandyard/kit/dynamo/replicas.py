"""Membership of the processes that share a DynamoDB table."""

import asyncio
import logging
from contextlib import suppress

from sandyard.kit import ids
from sandyard.kit.clock import Clock
from sandyard.kit.dynamo.client import ConditionFailedError
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item
from sandyard.kit.errors import UnavailableError

logger = logging.getLogger(__name__)

_RENEW_SEC = 3.0
_FRESH_SEC = 1.0
_ALIVE_SEC = 12.0
"""A process that has not renewed its entry for this long is considered gone."""
_ENTRY = "replica_"


class DynamoReplicas:
    """The live processes, in one item with an entry for each, which the process renews while it
    runs.

    All processes see the same order. A process that joins or leaves is visible to the others within
    three seconds, to those that call `refresh` within one; one that was killed disappears within
    fifteen. Do not rely on it for correctness.
    """

    def __init__(self, table: Table, *, key: Item, clock: Clock) -> None:
        self._table = table
        self._key = key
        self._clock = clock
        self._name = f"{_ENTRY}{ids.holder_id()}"
        self._renewed_at = 0.0
        self._renewing: asyncio.Task[None] | None = None
        self.rank, self.count = 0, 1

    async def start(self) -> None:
        """Join, and remain a member until `stop`; if the engine is down, join once it is
        available."""
        with suppress(UnavailableError):
            await self.renew()
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._keep_renewing())

    async def refresh(self) -> None:
        """Reread the members, unless this was done within the last second."""
        if self._renewing is not None and _now() - self._renewed_at > _FRESH_SEC:
            with suppress(UnavailableError):
                await self.renew()

    async def stop(self) -> None:
        if self._renewing is None:
            return
        self._renewing.cancel()
        await asyncio.wait([self._renewing])
        self._renewing = None
        with suppress(UnavailableError):
            await self._table.update(self._key, f"REMOVE #{self._name}", {})

    async def renew(self) -> None:
        """Renew this process's entry and reread the members."""
        now, self._renewed_at = self._clock.now(), _now()
        item = await self._table.update(
            self._key, f"SET #{self._name} = :until", {"until": now + _ALIVE_SEC}
        )
        entries = {name: until for name, until in item.items() if name.startswith(_ENTRY)}
        alive = sorted(name for name, until in entries.items() if until > now)
        self.rank, self.count = alive.index(self._name), len(alive)
        for name in entries.keys() - set(alive):
            await self._forget(name, now)

    async def _forget(self, name: str, now: float) -> None:
        with suppress(ConditionFailedError):  # it has rejoined
            await self._table.update(
                self._key, f"REMOVE #{name}", {"now": now}, condition=f"#{name} <= :now"
            )

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_SEC)
            try:
                await self.renew()
            except UnavailableError as error:
                logger.debug("replicas not renewed", extra={"reason": error.reason})


def _now() -> float:
    return asyncio.get_running_loop().time()
