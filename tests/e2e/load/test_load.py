"""The locustfile against a real server: callers of all kinds come, and none fails."""

import csv
import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.telemetry.api import Api
from tests.support.servers.processes import csp_simulator, sandyard_serve, wait_for_pool
from tests.support.servers.users import signed_up

ROOT = Path(__file__).parents[3]
UV = [str(ROOT / ".tools/bin/uv"), "run", "--isolated", "--only-group", "load"]
SECONDS, RATE = 6, 46


@pytest.mark.torture
@pytest.mark.timeout(300)
def test_tracks_users_and_devices_come_and_are_answered(tmp_path: Path) -> None:
    with csp_simulator(tmp_path, "--count", "500") as provider:
        environment = {"CSP_BASE_URL": provider, "CSP_API_TOKEN": "any"}
        with sandyard_serve(tmp_path / "data", environment=environment) as server:
            wait_for_pool(server)
            ann = signed_up(server, "ann", mail=1)
            key = ann.call("POST", "/api-keys", {"name": "load"}, expect=201)["api_key"]
            board = Api(server)
            callers = {
                "BROKER_API_TOKEN": server.track_token,
                "SANDYARD_API_KEY": key,
                "SANDYARD_DEVICE_KEY": board.key["api_key"],
            }
            board.client.close()
            options = ["--headless", "--host", server.url, "--csv", str(tmp_path / "said")]
            options += ["--rate", str(RATE), "--run-time", f"{SECONDS}s"]
            subprocess.run(
                [*UV, "locust", "-f", "deploy/load/locustfile.py", *options],
                cwd=ROOT,
                env=os.environ | callers,
                check=True,
                timeout=240,
            )
    with (tmp_path / "said_stats.csv").open() as file:
        said = {row["Name"]: row for row in csv.DictReader(file)}
    assert {name: row["Failure Count"] for name, row in said.items()} == dict.fromkeys(said, "0")
    expected = {"claim", "claim again", "mark", "reading", "sandboxes", "projects"}
    assert expected < said.keys()
    assert int(said["claim"]["Request Count"]) >= RATE / 2.3 * SECONDS / 2
