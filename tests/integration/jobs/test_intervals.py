"""The settings of intervals are those of the jobs."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from sandyard.entrypoints.server.parts import running_parts
from sandyard.settings import load_settings

INTERVALS = {
    "BILLING_INTERVAL_SEC": ["billing"],
    "EVENT_PRUNE_INTERVAL_SEC": ["events", "telemetry-events", "platform-events"],
    "HOLDS_INTERVAL_SEC": ["holds"],
    "PREVIEW_SWEEP_INTERVAL_SEC": ["end-previews", "previews"],
    "RETENTION_INTERVAL_SEC": ["retention"],
    "SNAPSHOTS_INTERVAL_SEC": ["snapshots"],
    "WARM_INTERVAL_SEC": ["warm"],
}


async def test_every_interval_is_that_of_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(INTERVALS, start=11):
        monkeypatch.setenv(name, str(number))
    monkeypatch.setenv("CSP_BASE_URL", "http://127.0.0.1:9")
    settings = load_settings()
    async with running_parts(settings, tmp_path, CollectorRegistry()) as parts:
        found = {job.plain_name: job.interval_sec for part in parts for job in part.schedule}
    for number, jobs in enumerate(INTERVALS.values(), start=11):
        assert [found[job] for job in jobs] == [number] * len(jobs)
