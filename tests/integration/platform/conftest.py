"""The Platform with sandboxes that really run, on each engine."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.clocks import RunningClock
from tests.support.platform.in_process import MigratedEngines, PlatformApi, platform_api
from tests.support.runtime.git_server import GitServer, git_server
from tests.support.storage.engines import ONE_SQL_ENGINE


@pytest.fixture(scope="session")
def git(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    with git_server(tmp_path_factory.mktemp("git")) as server:
        yield server


@pytest.fixture(params=ONE_SQL_ENGINE)
async def api(
    request: pytest.FixtureRequest, migrated: MigratedEngines, tmp_path: Path, git: GitServer
) -> AsyncIterator[PlatformApi]:
    tmp_path.chmod(0o755)
    url = await migrated.copy(request.param, tmp_path)
    local = {
        "sandbox_git_networks": "127.0.0.0/8",
        "sandbox_git_ca_file": str(git.ca_file),
        "quota_sandboxes": 3,
        "quota_cpu": 4,
    }
    async with platform_api(url, tmp_path, RunningClock(), sandboxes=local) as api:
        yield api
        for held in await api.part.wired.runtime.list_runs("sandbox"):
            await api.part.wired.runtime.stop(held.run_id)
