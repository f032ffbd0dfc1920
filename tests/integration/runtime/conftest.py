"""The local runtime on this machine, in a folder of each test's own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.runtime.local.server.options import LocalOptions
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import end_all


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "runtime")
    yield runtime
    await end_all(runtime)


@pytest.fixture
async def not_isolated(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "runtime", LocalOptions(isolation="none"))
    yield runtime
    await end_all(runtime)
