"""Settings of Telemetry, each by what it changes."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from sandyard.settings import load_settings
from sandyard.telemetry.wiring.part import TelemetryPart
from tests.support.clocks import ManualClock
from tests.support.telemetry.engines import NOW, NOW_MS, raw_reading

DAY_MS = 86_400_000


async def test_readings_retention_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READINGS_RETENTION_DAYS", "2")
    part = TelemetryPart(
        load_settings(), data_dir=tmp_path, registry=CollectorRegistry(), clock=ManualClock(NOW)
    )
    try:
        await part.prepare()
        sent = [
            raw_reading(batch_id=f"{days}", timestamp_ms=NOW_MS - days * DAY_MS) for days in (1, 3)
        ]
        report = await part.telemetry.ingest(sent)
    finally:
        await part.close()
    codes = {each.batch_id: each.code.value for each in report.rejected}
    assert codes == {"1": "DEVICE_NOT_REGISTERED", "3": "TOO_OLD"}
