"""Claims go on, whoever attacks: none fails, and none waits for the work that an attack makes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.attacks.attacks import ATTACKS
from tests.integration.attacks.prober import Prober, attacked
from tests.support.servers.processes import (
    ServerProcess,
    csp_simulator,
    run_command,
    sandyard_serve,
    wait_for_pool,
)
from tests.support.storage.engines import create_database

MOST_BYTES = 300_000_000
SECONDS = 4
TORTURE_SECONDS = 20


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with csp_simulator(tmp_path_factory.mktemp("provider"), "--count", "8000") as url:
        yield url


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, provider: str) -> Iterator[ServerProcess]:
    environment = {"CSP_BASE_URL": provider}
    data_dir = tmp_path_factory.mktemp("attacked") / "data"
    with sandyard_serve(data_dir, environment=environment) as server:
        wait_for_pool(server)
        yield server


@pytest.mark.parametrize("name", [name for name, each in ATTACKS.items() if each.in_ci])
async def test_claims_go_on_during_an_attack(server: ServerProcess, name: str) -> None:
    with attacked(name, server.url):
        claims = await Prober(server).probe(SECONDS)
    assert claims.statuses.keys() == {201}
    assert claims.long_steps == 0
    assert claims.grown_bytes < MOST_BYTES


@pytest.mark.torture
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_claims_are_hardly_slower_during_an_attack(
    tmp_path: Path, provider: str, postgres_url: str, engine: str, name: str
) -> None:
    environment = {"CSP_BASE_URL": provider}
    if engine == "postgresql":
        environment["DATABASE_URL"] = await create_database(postgres_url)
        assert run_command("db", "upgrade", environment=environment).returncode == 0
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        wait_for_pool(server)
        prober = Prober(server)
        before = await prober.probe(TORTURE_SECONDS)
        with attacked(name, server.url):
            during = await prober.probe(TORTURE_SECONDS)
    told = f"{engine}, {name}: p99 {before.p99_sec:.3f} s, attacked {during.p99_sec:.3f} s"
    print(told)  # noqa: T201 - the measurement itself
    assert during.statuses.keys() == {201}
    assert during.long_steps == 0
    assert during.grown_bytes < MOST_BYTES
    assert during.p99_sec < max(0.1, 5 * before.p99_sec)
