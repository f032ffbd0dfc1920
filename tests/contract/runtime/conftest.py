"""Every runtime, with a place of its own for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.runtime.ports import Runtime
from sandyard.runtime.sessions.ports import Session
from tests.support.runtime.runtimes import GVISOR, RUNTIMES, WITHOUT_ROOT, RuntimeHost, runtime_host
from tests.support.runtime.sessions import SESSIONS, SessionHost, session_host

_MORE = [pytest.param(name, marks=pytest.mark.torture) for name in (WITHOUT_ROOT, GVISOR)]


_NOT_WITH_GVISOR = (
    # Its processes are not the host's, which this counts.
    "test_all_processes_end_with_it",
    # Its pipes with names exist inside alone.
    "test_only_plain_files_are_read_and_written",
    # Its terminals signal, and then pass the key on as well.
    "test_keys_interrupt_what_runs_in_a_terminal",
)
"""Differences that docs/security.md names."""


_NOT_IN_PODS = (
    # The kubelet evicts a Pod that stores too much; nothing refuses its writes.
    "test_a_full_machine_says_so_and_recovers",
)
"""Differences that docs/kubernetes.md names."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [
        each
        for each in items
        if not (GVISOR in each.name and each.name.startswith(_NOT_WITH_GVISOR))
        and not ("kubernetes" in each.name and each.name.startswith(_NOT_IN_PODS))
    ]


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
