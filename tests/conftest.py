"""Fixtures that every kind of test shares."""

import asyncio
import gc
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from prometheus_client import CollectorRegistry
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.service import Broker
from sandyard.kit.sql.database import Database
from tests.support.broker.services import new_broker
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import MigratedEngines, migrate_engines
from tests.support.storage.engines import (
    SQL_ENGINES,
    STORE_ENGINES,
    broker_database,
    drop_databases,
    dynamo_server,
    pool_store,
    postgres_folder,
    postgres_server,
)

# A run in the background ignores SIGINT and SIGHUP, and so would the processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# No test trusts a public authority, and to load them all takes 20 ms for each client of httpx.
TESTS = Path(__file__).parent
os.environ["SSL_CERT_FILE"] = str(TESTS / "fixtures" / "authority.pem")

# How long an example takes says how busy the machine is, not whether it is right.
settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


# Files in the machine's memory, where there is room: writing them to a disk takes half of a run.
MEMORY = Path("/dev/shm")  # noqa: S108
ROOM_BYTES = 8 * 1024**3
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_BYTES:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_collection_finish() -> None:
    """Nothing that is there now is garbage later, and to look through it again and again takes a
    fifth of a run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A run of everything names what it leaves out for want of a key."""
    arguments = terminalreporter.config.invocation_params.args
    if not any(Path(each.partition("::")[0]).exists() for each in arguments):
        terminalreporter.write_line("not run: the real E2B (make test-real-e2b E2B_API_KEY=…)")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command that a test runs in this process sets up logging for all that follow."""
    level = logging.root.level
    yield
    logging.root.setLevel(level)


LONGEST_FIRST = (
    "e2e",
    "faults",
    "simulation",
    "interleavings",
    "histories",
    "deploy",
    "integration",
    "contract",
    "unit",
    "mutants",
)
"""The kinds of tests by how long their files take, so that no worker ends with a long one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST_FIRST.index(item.path.relative_to(TESTS).parts[0]))


SHARED = "tests/e2e/console/"
"""A folder whose tests share a server and a browser, so one worker has them all."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> "ByFile | None":
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


class ByFile(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """A worker takes a file at a time, or all of a shared folder."""

    def _split_scope(self, nodeid: str) -> str:
        return SHARED if nodeid.startswith(SHARED) else nodeid.partition("::")[0]


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_folder() as folder, postgres_server(folder / "data") as url:
        yield url


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> MigratedEngines:
    """The Platform and Previews, to be copied for each test."""
    return migrate_engines(tmp_path_factory.mktemp("migrated"), postgres_url)


@pytest.fixture(scope="module", autouse=True)
def _databases_end_with_their_file() -> Iterator[None]:
    yield
    with ThreadPoolExecutor(1) as apart:  # where no browser's loop is running
        apart.submit(lambda: asyncio.run(drop_databases())).result()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000)


@pytest.fixture(params=SQL_ENGINES)
async def database(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str
) -> AsyncIterator[Database]:
    async with broker_database(request.param, tmp_path, postgres_url) as database:
        yield database


@pytest.fixture(scope="session")
def dynamo_url() -> Iterator[str]:
    with dynamo_server() as url:
        yield url


@pytest.fixture(params=STORE_ENGINES)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[PoolStore]:
    async with pool_store(request.param, tmp_path, postgres_url, dynamo_url) as store:
        yield store


@pytest.fixture
def metrics() -> BrokerMetrics:
    return BrokerMetrics(CollectorRegistry())


@pytest.fixture
def broker(store: PoolStore, clock: ManualClock, metrics: BrokerMetrics) -> Broker:
    return new_broker(store, clock=clock, metrics=metrics)
