"""A game day as an operator holds it, with real processes and a real Prometheus."""

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from sandyard.tools.gameday.processes import skewed_server
from sandyard.tools.gameday.skewed import ClockOffset

ROOT = Path(__file__).parents[3]


@pytest.mark.torture  # it watches a clock
@pytest.mark.parametrize(
    ("scenario", "engine", "alert"),
    [
        ("pool-exhaustion", "sqlite", "SandyardPoolEmpty"),
        ("sandboxes-killed", "sqlite", "SandyardDown"),
        ("previews-provider", "sqlite", "SandyardErrorBudgetFast"),
        ("readings-engine-away", "postgresql", "SandyardErrorBudgetFast"),
    ],
)
def test_a_game_day_sees_the_alert_fire_and_the_promises_hold(
    scenario: str, engine: str, alert: str, postgres_url: str
) -> None:
    arguments = ["gameday", scenario, "--engine", engine, "--seconds", "3"]
    held = subprocess.run(
        [sys.executable, "-m", "sandyard", *arguments],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": postgres_url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert held.returncode == 0, held.stdout + held.stderr
    assert f"alert   {alert} fired at second" in held.stdout
    assert "BROKEN" not in held.stdout
    assert held.stdout.endswith("Verdict: passed\n")


async def test_a_servers_clock_can_be_wrong_for_a_while(tmp_path: Path) -> None:
    clock = ClockOffset(tmp_path / "clock")
    settings = {"PARTS": "broker"}
    program = skewed_server(tmp_path, 1, tmp_path / "data", settings, clock.file)
    await program.start()
    try:
        clock.set(3600)
        ahead = await asyncio.to_thread(clock_of, program.url) - time.time()
        clock.set(0)
        right = await asyncio.to_thread(clock_of, program.url) - time.time()
    finally:
        await program.stop()
    assert 3000 < ahead < 3601
    assert right < 1


def clock_of(url: str) -> float:
    shown = httpx.get(f"{url}/metrics", timeout=60).text
    [at] = re.findall(r"^sandyard_clock_timestamp_seconds (\S+)$", shown, re.MULTILINE)
    return float(at)
