"""Previews on each engine, with a double of E2B for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.e2b.double import E2bDouble, e2b_double
from tests.support.platform.in_process import MigratedEngines
from tests.support.previews.in_process import PreviewApi, preview_api
from tests.support.storage.engines import SQL_ENGINES


@pytest.fixture
async def double() -> AsyncIterator[E2bDouble]:
    async with e2b_double() as double:
        yield double


@pytest.fixture(params=SQL_ENGINES)
async def database_url(
    request: pytest.FixtureRequest, migrated: MigratedEngines, tmp_path: Path
) -> str | None:
    return await migrated.copy(request.param, tmp_path)


@pytest.fixture
async def api(
    database_url: str | None, tmp_path: Path, double: E2bDouble
) -> AsyncIterator[PreviewApi]:
    async with preview_api(database_url, tmp_path, double) as api:
        yield api
