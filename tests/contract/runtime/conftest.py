"""Every runtime, with a place of its own for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.runtime.ports import Runtime
from sandyard.runtime.sessions.ports import Session
from tests.support.runtime.runtimes import GVISOR, RUNTIMES, WITHOUT_ROOT, RuntimeHost, runtime_host
from tests.support.runtime.sessions import SESSIONS, SessionHost, session_host

_MORE = [pytest.param(name, marks=pytest.mark.torture) for name in (WITHOUT_ROOT, GVISOR)]


@pytest.fixture(params=[*RUNTIMES, *_MORE])
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RuntimeHost]:
    async with runtime_host(request.param, tmp_path) as host:
        yield host


@pytest.fixture
def runtime(host: RuntimeHost) -> Runtime:
    return host.connect()


@pytest.fixture(params=[*SESSIONS, *_MORE])
async def machine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionHost]:
    async with session_host(request.param, tmp_path) as machine:
        yield machine


@pytest.fixture
async def session(machine: SessionHost) -> Session:
    return await machine.connect()
