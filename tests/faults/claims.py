"""Many callers at once, spread over the replicas of a pool on DynamoDB."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from sandyard.broker.model import Claim, Claimed
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.errors import UnavailableError
from tests.pools import NOW


async def claim_until_answered(store: DynamoPoolStore, track: str) -> Claimed | None:
    """As a caller does, who asks again when a busy machine did not answer in time."""
    while True:
        with suppress(UnavailableError):
            return await store.claim(Claim(track, track, NOW))


async def claim_all(
    stores: Sequence[DynamoPoolStore], tracks: int, *, prefix: str = "t"
) -> list[Claimed | None]:
    """So many tracks at once, spread over the stores."""
    return await asyncio.gather(
        *(claim_until_answered(stores[n % len(stores)], f"{prefix}{n}") for n in range(tracks))
    )


def sandboxes(claims: list[Claimed | None]) -> set[str]:
    assert None not in claims, f"{claims.count(None)} callers were told that nothing is free"
    return {claim.lease.sandbox_id for claim in claims if claim is not None}
