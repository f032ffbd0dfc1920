"""The contract of the pool's store holds for the one in memory too."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.broker.pool.ports import PoolStore
from tests.support.storage.engines import STORE_ENGINES, pool_store


@pytest.fixture(params=[*STORE_ENGINES, "memory"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[PoolStore]:
    async with pool_store(request.param, tmp_path, postgres_url, dynamo_url) as store:
        yield store
