"""A game day as an operator holds it, with real processes and a real Prometheus."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.torture  # it watches a clock
def test_a_game_day_sees_the_alert_fire_and_the_promises_hold() -> None:
    arguments = ["gameday", "pool-exhaustion", "--seconds", "3"]
    held = subprocess.run(
        [sys.executable, "-m", "sandyard", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert held.returncode == 0, held.stdout + held.stderr
    assert "alert   SandyardPoolEmpty fired at second" in held.stdout
    assert "BROKEN" not in held.stdout
    assert held.stdout.endswith("Verdict: passed\n")
