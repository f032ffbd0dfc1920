"""Jobs that a scheduler runs one by one, each in a process of its own."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.provider.errors import (
    CircuitOpenError,
    ProviderMismatchError,
    ProviderUnavailableError,
)
from sandyard.broker.wiring.part import BrokerPart, build_broker
from sandyard.broker.wiring.provider import ProviderAddress
from sandyard.settings import describe, load_settings
from sandyard.tools.provider.simulator import Faults, Simulator


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, simulator_url: str) -> None:
    for name, _ in describe():
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "CSP_BASE_URL": simulator_url,
        "CSP_MAX_ATTEMPTS": "1",
        "CIRCUIT_BREAKER_THRESHOLD": "2",
        "CIRCUIT_BREAKER_TIMEOUT_SEC": "3600",
    }.items():
        monkeypatch.setenv(name, value)


async def sync(data_dir: Path, url: str) -> tuple[int, bool]:
    """Run the job as a process of its own would; how many were added, and whether its circuit is
    open for the next one."""
    part: BrokerPart = build_broker(
        load_settings(),
        data_dir=data_dir,
        provider_address=ProviderAddress(url, "", url),
        registry=CollectorRegistry(),
        other_logs={},
    )
    try:
        await part.prepare()
        return (
            await part.runner.run(part.schedule[0])
        ).added, await part.provider.circuit_is_open()
    finally:
        await part.close()


@pytest.mark.usefixtures("settings")
async def test_a_provider_that_is_down_is_left_alone_by_the_next_one_too(
    tmp_path: Path, simulator: Simulator, simulator_url: str
) -> None:
    simulator.create(3)
    assert await sync(tmp_path, simulator_url) == (3, False)
    simulator.faults = Faults(outage="error")
    for _ in range(2):
        with pytest.raises(ProviderUnavailableError):
            await sync(tmp_path, simulator_url)
    asked = simulator.calls["list"]
    for _ in range(3):
        with pytest.raises(CircuitOpenError):
            await sync(tmp_path, simulator_url)
    assert simulator.calls["list"] == asked


@pytest.mark.usefixtures("settings")
async def test_another_provider_is_not_asked(
    tmp_path: Path, simulator: Simulator, simulator_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await sync(tmp_path, simulator_url) == (0, False)
    monkeypatch.setenv("CSP_BASE_URL", "http://127.0.0.1:9")
    asked = simulator.calls["list"]
    with pytest.raises(ProviderMismatchError):
        await sync(tmp_path, simulator_url)
    assert simulator.calls["list"] == asked
