"""A running sandbox behind a real server, on machines that are folders."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sandyard.entrypoints.http.api import entry_of
from sandyard.entrypoints.server.listeners import listening
from sandyard.kit.sql.database import SqliteDatabase
from sandyard.platform.schema.migrations import MIGRATIONS
from tests.fakes.runtime import FakeRuntime
from tests.integration.sessions.boxes import Box
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import PlatformApi, platform_api
from tests.support.platform.sandboxes import act, add_sandbox


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[FakeRuntime]:
    runtime = FakeRuntime(tmp_path / "machines")
    yield runtime
    await runtime.end_all()


@pytest.fixture
async def api(
    tmp_path: Path, clock: ManualClock, runtime: FakeRuntime
) -> AsyncIterator[PlatformApi]:
    database = SqliteDatabase(tmp_path / "platform.db", schema="platform")
    await MIGRATIONS.upgrade(database)
    await database.close()
    async with (
        platform_api(None, tmp_path, clock, runtime=runtime) as api,
        listening(entry_of(api.app)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        api.client = client
        yield api


@pytest.fixture
async def box(api: PlatformApi) -> Box:
    owner = await api.account()
    sandbox = await add_sandbox(api, owner)
    await act(api, owner, sandbox, "start")
    return Box(api, owner, sandbox)
