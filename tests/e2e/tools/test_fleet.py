"""`sandyard devices simulate`: a fleet that behaves badly, and a server that keeps all once."""

import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sandyard.kit.free_ports import free_port
from sandyard.tools.fleet.board import BoardBehavior
from sandyard.tools.fleet.simulation import Fleet, FleetPlan, open_fleet
from tests.support.servers.processes import ServerProcess, run_sandyard, sandyard_serve, verify

TOKEN = {"TELEMETRY_ADMIN_TOKEN": "telemetry-token-of-the-tests"}
DEVICES, READINGS, RATE = 200, 40, 1000
TOTAL = DEVICES * READINGS
FINE = "The server has stored exactly what was measured."
SUMMARY = re.compile(
    r"(?P<devices>\d+) devices, (?P<readings>\d+) readings, (?P<requests>\d+) requests, "
    r"(?P<duplicates>\d+) duplicates sent, (?P<lost>\d+) answers lost, (?P<retries>\d+) retries\n"
    r"(?P<seconds>[\d.]+) seconds, (?P<speed>\d+) readings/s, seed (?P<seed>\d+)\n"
)


@pytest.fixture(scope="module")
def telemetry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with sandyard_serve(
        tmp_path_factory.mktemp("fleet") / "data", environment={"PARTS": "telemetry"}
    ) as server:
        yield server


def simulate(
    *arguments: str, tmp_path: Path, environment: dict[str, str] | None = None
) -> tuple[int, str, str]:
    process = start(*arguments, tmp_path=tmp_path, environment=environment)
    output, _ = process.communicate(timeout=90)
    return process.returncode, output.decode(), (tmp_path / "stderr").read_text()


def start(
    *arguments: str, tmp_path: Path, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    (tmp_path / "stderr").unlink(missing_ok=True)
    return run_sandyard(
        *("devices", "simulate", *arguments),
        environment=TOKEN if environment is None else environment,
        log=tmp_path / "stderr",
    )


def summary_of(output: str) -> dict[str, float]:
    found = SUMMARY.match(output)
    assert found, output
    return {name: float(value) for name, value in found.groupdict().items()}


def acknowledged(server: ServerProcess) -> int:
    """How many readings this server process has acknowledged as new."""
    metrics = httpx.get(f"{server.url}/metrics", timeout=10).text
    found = re.search(r'^readings_total\{outcome="acknowledged"\} (\S+)$', metrics, re.MULTILINE)
    return int(float(found[1])) if found else 0


def test_a_small_fleet_ends_well_and_prints_its_summary(
    telemetry: ServerProcess, tmp_path: Path
) -> None:
    before = acknowledged(telemetry)
    code, output, errors = simulate(
        *("--url", telemetry.url, "--count", "5", "--readings", "60", "--batch", "10"),
        *("--duplicates", "0.3", "--reorder", "0.3", "--lost-answers", "0.3", "--seed", "7"),
        tmp_path=tmp_path,
    )
    assert (code, errors) == (0, ""), output
    summary = summary_of(output)
    assert (summary["devices"], summary["readings"], summary["seed"]) == (5, 300, 7)
    assert summary["requests"] >= 300 / 10 + 5
    assert 50 <= summary["duplicates"] <= 150
    assert 1 <= summary["lost"] <= summary["retries"]
    assert output.endswith(f"\n{FINE}\n")
    assert acknowledged(telemetry) - before == 300


def test_a_fleet_comes_again_with_other_devices_and_takes_its_key_away(
    telemetry: ServerProcess, tmp_path: Path
) -> None:
    arguments = ("--url", f"{telemetry.url}/", "--count", "2", "--readings", "5", "--seed", "1")
    base = f"{telemetry.url}/telemetry/v1"
    known = [_hardware_ids(base, telemetry)]
    for _ in range(2):
        code, output, errors = simulate(*arguments, tmp_path=tmp_path)
        assert code == 0, output + errors
        known.append(_hardware_ids(base, telemetry))
    assert [len(each) - len(known[0]) for each in known] == [0, 2, 4]
    assert _active_keys(telemetry) == []


def _hardware_ids(base: str, server: ServerProcess) -> set[str]:
    page = httpx.get(f"{base}/devices?limit=100", headers=server.operator, timeout=60).json()
    assert page["next_cursor"] is None
    return {device["hardware_id"] for device in page["devices"]}


def test_an_interrupted_fleet_takes_its_key_away_too(
    telemetry: ServerProcess, tmp_path: Path
) -> None:
    before = acknowledged(telemetry)
    fleet = start(
        *("--url", telemetry.url, "--rate", "50", "--count", "2", "--readings", "3000"),
        tmp_path=tmp_path,
    )
    _wait_for(telemetry, at_least=before + 1)
    assert len(_active_keys(telemetry)) == 1
    fleet.send_signal(signal.SIGINT)
    output, _ = fleet.communicate(timeout=60)
    assert (fleet.returncode, output) == (130, b"")
    assert "Traceback" not in (tmp_path / "stderr").read_text()
    assert _active_keys(telemetry) == []


def _active_keys(server: ServerProcess) -> list[str]:
    answer = httpx.get(
        f"{server.url}/telemetry/v1/api-keys?limit=100", headers=server.operator, timeout=60
    )
    return [key["key_id"] for key in answer.json()["api_keys"] if key["is_active"]]


def test_a_rate_is_kept(telemetry: ServerProcess, tmp_path: Path) -> None:
    code, output, _ = simulate(
        *("--url", telemetry.url, "--count", "4", "--readings", "25", "--rate", "80"),
        *("--batch", "5"),
        tmp_path=tmp_path,
    )
    assert code == 0
    # The command hands the rate on: the last of 20 batches may start after 95 readings' time.
    assert summary_of(output)["seconds"] >= 95 / 80


def test_the_token_is_found_in_the_servers_data_dir(tmp_path: Path) -> None:
    environment = {"PARTS": "telemetry", "TELEMETRY_ADMIN_TOKEN": ""}
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        code, output, errors = simulate(
            *("--url", server.url, "--data-dir", str(server.data_dir), "--count", "1"),
            environment={},
            tmp_path=tmp_path,
        )
    assert code == 0, errors
    assert output.endswith(f"\n{FINE}\n")


@pytest.mark.timeout(600)
def test_a_fleet_that_can_not_start_says_why_in_one_line(
    telemetry: ServerProcess, tmp_path: Path
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    for environment, url, words in (
        ({"TELEMETRY_ADMIN_TOKEN": "a-wrong-token-of-the-tests"}, telemetry.url, "401"),
        (
            {"TELEMETRY_ADMIN_TOKEN": "é" * 16},
            telemetry.url,
            "_ADMIN_TOKEN: must be ASCII",
        ),
        ({}, telemetry.url, "TELEMETRY_ADMIN_TOKEN: must be set"),
        (TOKEN, nobody, f"No server responds at {nobody}"),
        (TOKEN, f"{telemetry.url}/elsewhere", "Does the --url serve Telemetry?"),
    ):
        code, output, errors = simulate(
            *("--url", url, "--data-dir", str(tmp_path / "none")),
            environment=environment,
            tmp_path=tmp_path,
        )
        assert (code, output) == (1, ""), errors
        assert errors.startswith("sandyard: ")
        assert words in errors
        assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--count", "0"),
        ("--batch", "101"),
        ("--duplicates", "1.1"),
        ("--reorder", "-0.1"),
        ("--lost-answers", "1"),
        ("--rate", "-1"),
        ("--url", "ftp://example.com"),
        ("--url", "http://127.0.0.1:99999"),
        ("--url", "http://["),
    ],
)
def test_a_wrong_option_is_a_usage_error(option: str, value: str, tmp_path: Path) -> None:
    code, output, errors = simulate(option, value, tmp_path=tmp_path)
    assert (code, output) == (2, "")
    assert option in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("arguments", [["devices"], ["devices", "simulate"]], ids=" ".join)
def test_there_is_help_with_examples(arguments: list[str], tmp_path: Path) -> None:
    process = run_sandyard(*arguments, "--help", log=tmp_path / "stderr")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"Examples:" in output


def test_patience_ends_when_the_server_stays_away(tmp_path: Path) -> None:
    with sandyard_serve(tmp_path / "data", environment={"PARTS": "telemetry"}) as server:
        fleet = start(
            *("--url", server.url, "--count", "2", "--rate", "20", "--batch", "5"),
            *("--stall-timeout", "0.5"),
            tmp_path=tmp_path,
        )
        _wait_for(server, at_least=10)
        server.kill()
        output, _ = fleet.communicate(timeout=60)
    errors = (tmp_path / "stderr").read_text()
    assert (fleet.returncode, output) == (1, b"")
    assert errors.startswith("sandyard: No progress for ")
    assert errors.count("\n") == 1


def test_a_bad_fleet_over_a_server_killed_in_the_middle_leaves_nothing_missing_or_double(
    tmp_path: Path,
) -> None:
    """Two hundred devices, a fifth of everything goes wrong, and `kill -9` after a third."""
    port = free_port()
    environment = {"PARTS": "telemetry", "LOG_LEVEL": "WARNING"}
    with sandyard_serve(tmp_path / "data", environment=environment, port=port) as server:
        fleet = start(
            *("--url", server.url, "--count", str(DEVICES), "--readings", str(READINGS)),
            *("--rate", str(RATE), "--duplicates", "0.2", "--reorder", "0.2"),
            *("--lost-answers", "0.2", "--seed", "11"),
            tmp_path=tmp_path,
        )
        before = _wait_for(server, at_least=TOTAL // 3)
        server.kill()
        assert fleet.poll() is None
    assert TOTAL // 3 <= before <= TOTAL * 2 // 3
    with sandyard_serve(tmp_path / "data", environment=environment, port=port) as server:
        output, _ = fleet.communicate(timeout=90)
        after = acknowledged(server)
    assert fleet.returncode == 0, output.decode() + (tmp_path / "stderr").read_text()
    assert output.decode().endswith(f"\n{FINE}\n")
    assert TOTAL // 5 <= after <= TOTAL - before
    summary = summary_of(output.decode())
    assert (summary["devices"], summary["readings"]) == (DEVICES, TOTAL)
    assert summary["duplicates"] >= TOTAL // 10
    assert summary["lost"] >= 100
    assert summary["retries"] > summary["lost"]
    with sqlite3.connect(tmp_path / "data" / "telemetry.db") as database:
        [[rows]] = database.execute("SELECT count(*) FROM device_readings")
        [[markers]] = database.execute("SELECT count(*) FROM processed_batches")
    database.close()
    assert rows == markers == TOTAL
    code, output_of_verify = verify(tmp_path / "data", environment)
    assert code == 0, output_of_verify


def _wait_for(server: ServerProcess, *, at_least: int) -> int:
    """Until this process has acknowledged so many readings; how many it had at the last look."""
    deadline = time.monotonic() + 60
    while (seen := acknowledged(server)) < at_least:
        assert time.monotonic() < deadline, f"only {seen} readings came"
        time.sleep(0.05)
    return seen


async def _sent(fleet: Fleet) -> list[str]:
    """Let the fleet send and be checked; gives the ids of the first board's readings."""
    await fleet.send(lambda _: None)
    assert await fleet.check(lambda _: None) == []
    return list(fleet.boards[0].measured.readings)


DAMAGES = {
    "missing": "DELETE FROM device_readings WHERE batch_id = ?",
    "changed": "UPDATE device_readings SET sensors = '{\"humidity_pct\":1}' WHERE batch_id = ?",
    "doubled": (
        "INSERT INTO device_readings (hardware_id, timestamp_ms, batch_id, boot_id, "
        "firmware_version, friendly_name, sensors, sensor_status) "
        "SELECT hardware_id, timestamp_ms - 1, batch_id, boot_id, "
        "firmware_version, friendly_name, sensors, sensor_status FROM device_readings "
        "WHERE batch_id = ?"
    ),
    "unknown": "UPDATE device_readings SET batch_id = 'x' WHERE batch_id = ?",
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_the_check_finds_what_was_done_to_one_reading_in_the_database(
    telemetry: ServerProcess, damage: str
) -> None:
    plan = FleetPlan(
        count=3, readings=30, seed=5, behavior=BoardBehavior(duplicates=0.2, reorder=0.2)
    )
    token = TOKEN["TELEMETRY_ADMIN_TOKEN"]
    async with open_fleet(plan, url=telemetry.url, admin_token=token) as fleet:
        batch_ids = await _sent(fleet)
        hurt = batch_ids[12]
        database = sqlite3.connect(telemetry.data_dir / "telemetry.db", timeout=10)
        with database:
            assert database.execute(DAMAGES[damage], [hurt]).rowcount == 1
        database.close()
        found = await fleet.check(lambda _: None)
    expected = {"unknown": ["missing", "unknown"], "doubled": ["doubled", "changed"]}
    assert [each.kind for each in found] == expected.get(damage, [damage])
    assert {each.hardware_id for each in found} == {fleet.boards[0].measured.hardware_id}
    assert hurt in found[0].detail


async def test_the_check_finds_a_latest_reading_that_is_gone(telemetry: ServerProcess) -> None:
    plan = FleetPlan(count=1, readings=20, seed=6)
    token = TOKEN["TELEMETRY_ADMIN_TOKEN"]
    async with open_fleet(plan, url=telemetry.url, admin_token=token) as fleet:
        batch_ids = await _sent(fleet)
        database = sqlite3.connect(telemetry.data_dir / "telemetry.db", timeout=10)
        with database:
            database.execute(DAMAGES["missing"], [batch_ids[-1]])
        database.close()
        found = await fleet.check(lambda _: None)
    assert [each.kind for each in found] == ["missing", "latest"]
