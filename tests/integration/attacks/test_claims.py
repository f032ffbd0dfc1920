"""Claims go on, whoever attacks: none fails, and none waits for the work that an attack makes."""

import os
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import psutil
import pytest

from tests.integration.attacks.attacks import ATTACKS
from tests.integration.attacks.prober import LONG_STEP_SEC, Claims, Credentials, Prober, attacked
from tests.support.servers.processes import (
    ServerProcess,
    csp_simulator,
    run_command,
    sandyard_serve,
    wait_for_pool,
)
from tests.support.storage.disks import SmallDisk, small_disk
from tests.support.storage.engines import create_database

MOST_BYTES = 300_000_000
SECONDS = 3
TORTURE_SECONDS = 15


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with csp_simulator(tmp_path_factory.mktemp("provider"), "--count", "8000") as url:
        yield url


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, provider: str) -> Iterator[ServerProcess]:
    environment = {"CSP_BASE_URL": provider, "QUOTA_SANDBOXES": "10"}  # builds of one test go on
    data_dir = tmp_path_factory.mktemp("attacked") / "data"
    with sandyard_serve(data_dir, environment=environment) as server:
        wait_for_pool(server)
        yield server
    for process in psutil.process_iter(["cmdline"]):  # machines outlive their server
        if any(str(data_dir) in each for each in process.info["cmdline"] or ()):
            with suppress(psutil.NoSuchProcess):
                process.terminate()


@pytest.fixture(scope="module")
def credentials(server: ServerProcess) -> Credentials:
    return Credentials.new(server)


def check(claims: Claims) -> None:
    assert claims.statuses.keys() == {201}
    assert claims.worst_step_sec <= LONG_STEP_SEC
    assert claims.grown_bytes < MOST_BYTES


@pytest.mark.parametrize("name", [name for name, each in ATTACKS.items() if each.in_ci])
async def test_claims_go_on_during_an_attack(
    server: ServerProcess, credentials: Credentials, name: str
) -> None:
    with attacked(name, server.url, credentials):
        check(await Prober(server).probe(SECONDS))


@pytest.mark.torture
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_claims_are_hardly_slower_during_an_attack(
    tmp_path: Path, provider: str, postgres_url: str, engine: str, name: str
) -> None:
    """Prints a row of the table in docs/security.md."""
    attack = ATTACKS[name]
    environment = {"CSP_BASE_URL": provider, **attack.settings}
    if engine == "postgresql":
        environment["DATABASE_URL"] = await create_database(postgres_url)
        assert run_command("db", "upgrade", environment=environment).returncode == 0
    size = attack.disk_megabytes
    with (
        small_disk(tmp_path, megabytes=size) if size else nullcontext(SmallDisk(tmp_path)) as disk,
        sandyard_serve(disk.path / "data", environment=environment) as server,
    ):
        wait_for_pool(server)
        prober, credentials = Prober(server), Credentials.new(server)
        before = await prober.probe(TORTURE_SECONDS)
        with attacked(name, server.url, credentials):
            during = await prober.probe(TORTURE_SECONDS)
    print(row_of(name, engine, before, during))  # noqa: T201 - the measurement itself
    check(during)
    assert during.p99_sec < max(0.1, 5 * before.p99_sec)


def row_of(name: str, engine: str, before: Claims, during: Claims) -> str:
    quiet, attacked_ms = before.p99_sec * 1000, during.p99_sec * 1000
    cells = [
        *(name, engine, during.failed, f"≤ {during.worst_step_sec * 1000:g} ms"),
        f"{during.grown_bytes / 1e6:.0f} MB",
        *(f"{quiet:.0f} ms", f"{attacked_ms:.0f} ms", f"{attacked_ms / quiet:.1f}"),
        f"{os.getloadavg()[0]:.1f}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"
