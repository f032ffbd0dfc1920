"""Many callers at once, spread over the replicas of a pool on DynamoDB."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from sandyard.broker.pool.model import Claim, Claimed
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.errors import UnavailableError
from tests.support.broker.pools import NOW

AT_ONCE = 90
"""Few enough that each claim keeps its deadline on a busy machine: one that does not counts its
candidate as lost."""


async def claim_until_answered(store: DynamoPoolStore, track: str) -> Claimed | None:
    """As a caller does, who asks again when a busy machine did not answer in time."""
    while True:
        with suppress(UnavailableError):
            return await store.claim(Claim(track, track, NOW))


async def claim_all(
    stores: Sequence[DynamoPoolStore], tracks: int, *, prefix: str = "t", at_once: int = AT_ONCE
) -> list[Claimed | None]:
    """So many tracks, spread over the stores, a bounded number of them at a time."""
    slots = asyncio.Semaphore(at_once)

    async def claim(number: int) -> Claimed | None:
        async with slots:
            return await claim_until_answered(stores[number % len(stores)], f"{prefix}{number}")

    return await asyncio.gather(*map(claim, range(tracks)))


def sandboxes(claims: list[Claimed | None]) -> set[str]:
    assert None not in claims, f"{claims.count(None)} callers were told that nothing is free"
    return {claim.lease.sandbox_id for claim in claims if claim is not None}
