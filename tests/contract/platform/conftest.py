"""The Platform on each engine, with a fresh database for each test."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.support.clocks import ManualClock
from tests.support.platform.in_process import MigratedEngines, PlatformApi, platform_api
from tests.support.storage.engines import SQL_ENGINES


@pytest.fixture(params=SQL_ENGINES)
async def api(
    request: pytest.FixtureRequest, migrated: MigratedEngines, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[PlatformApi]:
    url = await migrated.copy(request.param, tmp_path)
    async with platform_api(url, tmp_path, clock) as api:
        yield api


@pytest.fixture(params=SQL_ENGINES)
async def replicas(
    request: pytest.FixtureRequest, migrated: MigratedEngines, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Sequence[PlatformApi]]:
    """The Platform twice on one engine; SQLite serves one process, so there it is the same."""
    url = await migrated.copy(request.param, tmp_path)
    async with platform_api(url, tmp_path, clock) as one:
        if url is None:
            yield one, one
            return
        async with platform_api(url, tmp_path, clock) as other:
            yield one, other
