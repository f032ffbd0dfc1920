"""The runtime at E2B: the real SDK, against a double of E2B that really runs what it is told."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sandyard.runtime.programs.runner import ProgramRunner
from tests.integration.runtime_e2b.runtimes import connect_to
from tests.support.e2b.machine import MachineOptions
from tests.support.e2b.machines import E2bMachines, e2b_machines
from tests.support.runtime.git_server import GitServer, git_server


@pytest.fixture(scope="session")
def git(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    with git_server(tmp_path_factory.mktemp("git")) as server:
        yield server


@pytest.fixture
async def double(tmp_path: Path, git: GitServer) -> AsyncIterator[E2bMachines]:
    folder = tmp_path / "machines"
    folder.mkdir()
    options = MachineOptions(
        environment={"GIT_SSL_CAINFO": str(git.ca_file)},
        readable=[git.ca_file],
        reachable=[urlsplit(git.url).port or 443],
    )
    async with e2b_machines(folder, options) as double:
        yield double


@pytest.fixture
def runtime(double: E2bMachines, tmp_path: Path) -> ProgramRunner:
    return connect_to(double, tmp_path / "runtime")
