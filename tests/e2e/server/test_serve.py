"""`sandyard serve` as a process: first start, stopping, neighbours, engines that are away."""

import asyncio
import re
import shlex
import signal
import socket
import stat
import subprocess
import threading
import time
from pathlib import Path

import httpx
import orjson
import pytest
import sqlalchemy as sa

from sandyard.bootstrap.registry import PARTS
from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import (
    SECRETS,
    ServerProcess,
    csp_simulator,
    run_sandyard,
    sandyard_serve,
    wait_for_pool,
    wait_until_ready,
)
from tests.support.storage.engines import create_database, postgres_folder, postgres_server

OPERATIONS = (Path(__file__).parents[3] / "docs/operations.md").read_text()
METRICS = [
    "allocate_total",
    "deletion_marked_total",
    "sync_total",
    "cleanup_total",
    "expiry_total",
    "allocate_conflicts_total",
    "idempotent_hits_total",
    "pool_available",
    "pool_allocated",
    "pool_pending_deletion",
    "pool_stale",
    "pool_deletion_failed",
    "pool_total",
    "last_sync_timestamp_seconds",
    "request_latency_seconds_bucket",
    "allocation_latency_seconds_bucket",
    "sync_duration_seconds_bucket",
    "cleanup_duration_seconds_bucket",
]


def _read_until(process: subprocess.Popen[bytes], mark: str) -> str:
    assert process.stdout is not None
    text = ""
    while mark not in text:
        line = process.stdout.readline()
        assert line, f"the server ended after {text!r}"
        text += line.decode()
    return text


def test_the_first_start_makes_tokens_and_prints_lines_that_work_when_pasted(
    tmp_path: Path,
) -> None:
    port, data = free_port(), tmp_path / "data"
    process = run_sandyard(
        "serve", "--port", str(port), "--data-dir", str(data), log=tmp_path / "log"
    )
    try:
        text = _read_until(process, "/docs\n")
        [simulator] = re.findall(r"simulated \(25 .* admin token, .* (http\S+/_sim)", text)
        admin = {"Authorization": f"Bearer {(data / 'secrets/broker_admin_token').read_text()}"}
        for headers, status in (({}, 401), (admin, 200)):
            control = httpx.patch(simulator, json={"latency": 0}, headers=headers, timeout=60)
            assert control.status_code == status
        lines = re.findall(r"^\s+(curl .*)$", text, re.MULTILINE)
        assert len(lines) == 6
        answers = [
            subprocess.run(["sh", "-c", line], capture_output=True, check=True, timeout=60).stdout
            for line in lines
        ]
        lease, stats = orjson.loads(answers[0]), orjson.loads(answers[1])
        assert lease["name"].startswith("sandbox-")
        assert (stats["available"], stats["allocated"], stats["total"]) == (24, 1, 25)
        assert orjson.loads(answers[2])["api_key"]
        assert orjson.loads(answers[3])["devices"] == []
        assert orjson.loads(answers[4]) == {"status": "accepted"}
        assert f"files in {data / 'outbox'}" in text
        assert b"pool_total 25.0" in answers[5]
        for secret in (data / "secrets").iterdir():
            assert stat.S_IMODE(secret.stat().st_mode) == 0o600
            assert secret.read_text() not in text
            assert secret.read_text() not in (tmp_path / "log").read_text()
    finally:
        process.terminate()
        assert process.wait(60) == 0
        assert process.stdout is not None
        process.stdout.close()


def test_the_pool_and_its_simulated_provider_survive_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with sandyard_serve(data) as server:
        headers = server.track | {"X-Track-ID": "t"}
        httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60)
        first = httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=60).json()
        marked = f"{server.url}/v1/sandboxes/{first['sandbox_id']}/mark-for-deletion"
        assert httpx.post(marked, headers=headers, timeout=60).status_code == 200
        cleanup = httpx.post(
            f"{server.url}/v1/admin/cleanup", headers=server.admin, timeout=60
        ).json()
        assert cleanup == {"deleted": 1, "retried": 0, "failed": 0, "postponed": 0}
    with sandyard_serve(data) as server:
        sync = httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60).json()
        assert (sync["listed"], sync["added"], sync["unchanged"]) == (24, 0, 24)
        stats = httpx.get(f"{server.url}/v1/admin/stats", headers=server.admin, timeout=60).json()
        assert (stats["available"], stats["total"]) == (24, 24)


def test_a_second_server_on_the_port_or_the_data_dir_is_refused_in_one_line(
    tmp_path: Path,
) -> None:
    with sandyard_serve(tmp_path / "data") as server:
        port = server.url.rsplit(":", 1)[1]
        for arguments, words in (
            (["--port", port, "--data-dir", str(tmp_path / "other")], f"Port {port}"),
            (["--port", str(free_port()), "--data-dir", str(server.data_dir)], "Another process"),
        ):
            log = tmp_path / f"second-{len(words)}.log"
            second = run_sandyard("serve", *arguments, log=log)
            assert second.wait(60) == 1
            assert second.stdout is not None
            second.stdout.close()
            assert log.read_text().startswith(f"sandyard: {words}")
            assert log.read_text().count("\n") == 1


def typed(metrics: str) -> list[str]:
    """The names of ours, without those of the process."""
    names = [line.split(" ")[2] for line in metrics.splitlines() if line.startswith("# TYPE ")]
    return [each for each in names if not each.startswith(("python_", "process_"))]


def is_documented(metric: str) -> bool:
    """Under its own name, or under the one that it has without `sandyard_`."""
    return any(f"`{each}" in OPERATIONS for each in (metric, metric.removeprefix("sandyard_")))


def test_metrics_have_every_name_and_logs_have_every_field(tmp_path: Path) -> None:
    with sandyard_serve(tmp_path / "data") as server:
        httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60)
        headers = server.track | {"X-Track-ID": "t-1", "X-Request-ID": "mine-1"}
        lease = httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=60)
        assert lease.headers["X-Request-ID"] == "mine-1"
        metrics = httpx.get(f"{server.url}/metrics", timeout=60).text
        names = {line.split("{")[0].split(" ")[0] for line in metrics.splitlines()}
        assert set(METRICS) <= names
        assert [each for each in typed(metrics) if not is_documented(each)] == []
        assert 'route="/v1/allocate"' in metrics
        assert lease.json()["sandbox_id"] not in metrics
    lines = [orjson.loads(line) for line in server.log.read_text().splitlines()]
    [request] = [line for line in lines if line.get("request_id") == "mine-1"]
    assert request["track_id"] == "t-1"
    assert request["sandbox_id"] == lease.json()["sandbox_id"]
    assert (request["action"], request["outcome"]) == ("allocate", "ok")
    assert request["latency_ms"] > 0
    assert "track-token-of-the-tests" not in server.log.read_text()


def test_metrics_port_is_a_listener_of_its_own(tmp_path: Path) -> None:
    port = free_port()
    with sandyard_serve(tmp_path / "data", environment={"METRICS_PORT": str(port)}):
        deadline = time.monotonic() + 30
        while True:
            try:
                response = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60)
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline
        assert "pool_total" in response.text
        assert httpx.get(f"http://127.0.0.1:{port}/v1/admin/stats", timeout=60).status_code == 404


def test_beyond_loopback_metrics_need_a_token(tmp_path: Path) -> None:
    environment = {"METRICS_TOKEN": "token-of-the-scraper", "PARTS": "telemetry"}
    arguments = ("--host", "0.0.0.0")  # noqa: S104 - what is tested; asked over loopback alone
    with sandyard_serve(tmp_path / "data", environment=environment, arguments=arguments) as server:
        refused = httpx.get(f"{server.url}/metrics", timeout=60)
        assert (refused.status_code, "readings_total" in refused.text) == (401, False)
        allowed = httpx.get(
            f"{server.url}/metrics",
            headers={"Authorization": "Bearer token-of-the-scraper"},
            timeout=60,
        )
        assert (allowed.status_code, "readings_total" in allowed.text) == (200, True)


def test_sigterm_says_not_ready_finishes_requests_and_exits_in_time(tmp_path: Path) -> None:
    with csp_simulator(tmp_path, "--count", "5") as provider:
        environment = {"CSP_BASE_URL": provider, "CSP_TIMEOUT_READ_SEC": "30", "DRAIN_SEC": "6"}
        with sandyard_serve(tmp_path / "data", environment=environment) as server:
            wait_for_pool(server)  # else the call waits for the server's own sync
            calls = httpx.patch(f"{provider}/_sim", json={"latency": 8}, timeout=60).json()["calls"]
            slow: list[httpx.Response] = []
            request = threading.Thread(
                target=lambda: slow.append(
                    httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60)
                )
            )
            request.start()
            while (
                httpx.get(f"{provider}/_sim", timeout=60).json()["calls"]["list"] == calls["list"]
            ):
                time.sleep(0.05)
            started = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            while (ready := httpx.get(f"{server.url}/readyz", timeout=60)).status_code == 200:
                assert time.monotonic() - started < 6
            assert ready.status_code == 503
            assert ready.json()["error"]["code"] == "SERVICE_UNAVAILABLE"
            assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200
            request.join()
            assert slow[0].status_code == 200
            assert server.process.wait(60) == 0


def test_a_job_that_runs_at_sigterm_gives_its_lease_up(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with csp_simulator(tmp_path, "--count", "5", "--outage", "hang") as provider:
        environment = {"CSP_BASE_URL": provider, "CSP_TIMEOUT_READ_SEC": "30"}
        with sandyard_serve(data, environment=environment) as server:
            assert server.stop() == 0
        httpx.patch(f"{provider}/_sim", json={"outage": "none"}, timeout=60)
        command = ("jobs", "run", "sync", "--data-dir", str(data))
        process = run_sandyard(*command, environment=environment, log=tmp_path / "jobs.log")
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert orjson.loads(output)["added"] == 5


def test_readyz_goes_503_while_the_database_file_is_gone_and_comes_back(tmp_path: Path) -> None:
    with sandyard_serve(tmp_path / "data") as server:
        file = server.data_dir / "broker.db"
        file.rename(file.with_suffix(".away"))
        response = httpx.get(f"{server.url}/readyz", timeout=60)
        assert response.status_code == 503
        assert "sqlite" in response.json()["error"]["message"]
        assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200
        file.with_suffix(".away").rename(file)
        assert httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200


def banner(server: ServerProcess, end: str = "not ready yet: ") -> str:
    """What it has printed up to the line with these words."""
    assert server.process.stdout is not None
    text = ""
    for line in server.process.stdout:
        text += line.decode()
        if end in text:
            break
    return text


@pytest.mark.parametrize("is_own", [True, False])
def test_a_metrics_port_that_is_in_use_stops_the_start(tmp_path: Path, is_own: bool) -> None:
    port = free_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        metrics_port = port if is_own else other.getsockname()[1]
        log = tmp_path / "log"
        process = run_sandyard(
            *("serve", "--port", str(port), "--data-dir", str(tmp_path / "data")),
            environment={"METRICS_PORT": str(metrics_port)},
            log=log,
        )
        process.communicate(timeout=60)
    assert process.returncode == 1
    [line] = log.read_text().splitlines()
    assert "METRICS_PORT" in line
    assert str(metrics_port) in line


async def test_a_postgresql_without_its_database_is_told_for_all_parts_and_by_every_command(
    tmp_path: Path, postgres_url: str
) -> None:
    url = sa.make_url(postgres_url).set(database="missing").render_as_string(hide_password=False)
    environment = {"DATABASE_URL": url, "CSP_BASE_URL": "http://127.0.0.1:9"}
    told = "The postgresql engine has no such database. Create it, or correct the name"
    with sandyard_serve(
        tmp_path / "data", environment=environment, ready_path="/healthz"
    ) as server:
        error = httpx.get(f"{server.url}/readyz", timeout=60).json()["error"]
        shown = banner(server)
    names = [part.name for part in PARTS]
    assert "is ready" not in shown
    assert f"Sandyard is not ready yet: {server.url}/readyz says why." in shown
    for name in names:
        [line] = [line for line in shown.splitlines() if line.startswith(f"  {name} ")]
        assert f"not ready, on postgresql. {told}" in line
    assert told in error["message"]
    assert list(error["details"]["parts"]) == names
    owners = [f"{name}'" if name.endswith("s") else f"{name}'s" for name in names]
    assert all(f"the {owner} postgresql engine" in error["message"] for owner in owners)
    for command in (("db", "upgrade"), ("verify",), ("jobs", "run", "sync")):
        log = tmp_path / f"{command[0]}.log"
        run = run_sandyard(*command, environment=SECRETS | environment, log=log)
        run.communicate(timeout=60)
        assert run.returncode == 1
        lines = [line for line in log.read_text().splitlines() if line.startswith("sandyard: ")]
        assert told in lines[0]
        assert 'database "missing" does not exist' in lines[0]
        if command == ("verify",):
            assert [line.split(": ")[1] for line in lines] == names


async def test_postgresql_away_and_back(tmp_path: Path) -> None:
    """Started before its engine, without its schema, while it is stopped, and after it is back."""
    port = free_port()
    with postgres_folder() as top, csp_simulator(tmp_path, "--count", "5") as provider:
        folder = top / "data"
        with postgres_server(folder) as url:
            database_url = await create_database(url)
            environment = {"DATABASE_URL": database_url, "CSP_BASE_URL": provider}
            with sandyard_serve(
                tmp_path / "data", environment=environment, port=port, ready_path="/healthz"
            ) as server:
                response = httpx.get(f"{server.url}/readyz", timeout=60)
                assert response.status_code == 503
                assert "sandyard db upgrade" in response.json()["error"]["message"]
                upgrade = run_sandyard(
                    "db", "upgrade", environment=environment, log=tmp_path / "upgrade.log"
                )
                output, _ = upgrade.communicate(timeout=60)
                assert upgrade.returncode == 0, (tmp_path / "upgrade.log").read_text()
                migrated = [part.migrations() for part in PARTS]
                assert output.decode().splitlines() == [
                    f"{each.part}: version {each.head}, newest {each.head}" for each in migrated
                ]
                wait_until_ready(server.url, server.process)
                assert "Sandyard is ready: the console at" in banner(server, "is ready: ")
                sync = httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60)
                assert sync.status_code == 200
        # The engine is stopped now.
        with sandyard_serve(
            tmp_path / "data", environment=environment, port=port, ready_path="/healthz"
        ) as server:
            assert httpx.get(f"{server.url}/readyz", timeout=60).status_code == 503
            headers = server.track | {"X-Track-ID": "t"}
            for call in (
                httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=30),
                httpx.get(f"{server.url}/v1/sandboxes/x", headers=headers, timeout=30),
                httpx.get(f"{server.url}/v1/admin/stats", headers=server.admin, timeout=30),
            ):
                assert call.status_code == 503, call.text
                assert call.json()["error"]["code"] == "SERVICE_UNAVAILABLE"
                assert call.headers["Retry-After"]
            assert "Traceback" not in server.log.read_text()
            with postgres_server(folder):
                wait_until_ready(server.url, server.process)
                lease = httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=60)
                assert lease.status_code == 201


async def test_workers_share_a_port_their_metrics_and_one_schedule(
    tmp_path: Path, postgres_url: str
) -> None:
    database_url = await create_database(postgres_url)
    with csp_simulator(tmp_path, "--count", "200") as provider:
        metrics_port = free_port()
        environment = {
            "DATABASE_URL": database_url,
            "CSP_BASE_URL": provider,
            "METRICS_PORT": str(metrics_port),
        }
        upgrade = run_sandyard("db", "upgrade", environment=environment, log=tmp_path / "up.log")
        assert upgrade.wait(60) == 0
        assert upgrade.stdout is not None
        upgrade.stdout.close()
        with sandyard_serve(
            tmp_path / "data", environment=environment, arguments=("--workers", "2")
        ) as server:
            httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=30)
            async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
                responses = await asyncio.gather(
                    *(
                        client.post("/v1/allocate", headers=server.track | {"X-Track-ID": f"t{n}"})
                        for n in range(200)
                    )
                )
            leased = {r.json()["sandbox_id"] for r in responses}
            assert len(leased) == 200
            for _ in range(6):  # whichever worker answers, it speaks for both
                metrics = httpx.get(f"http://127.0.0.1:{metrics_port}/metrics", timeout=60).text
                assert 'allocate_total{outcome="created"} 200.0' in metrics
                assert "pool_allocated 200.0" in metrics
            assert server.stop() == 0
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url}/healthz", timeout=60)


async def test_workers_end_when_their_parent_is_killed(tmp_path: Path, postgres_url: str) -> None:
    environment = {
        "DATABASE_URL": await create_database(postgres_url),
        "CSP_BASE_URL": "http://127.0.0.1:9",
    }
    with sandyard_serve(
        tmp_path / "data",
        environment=environment,
        arguments=("--workers", "2"),
        ready_path="/healthz",
    ) as server:
        server.kill()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                httpx.get(f"{server.url}/healthz", timeout=60)
            except httpx.ConnectError:
                break
            except httpx.TransportError:  # its worker has just ended
                pass
            time.sleep(0.1)
        else:
            pytest.fail("a worker outlived its parent")


def test_a_pasted_line_needs_no_quoting(tmp_path: Path) -> None:
    odd = tmp_path / "a data dir"
    port = free_port()
    process = run_sandyard(
        "serve", "--port", str(port), "--data-dir", str(odd), log=tmp_path / "log"
    )
    try:
        text = _read_until(process, "/docs\n")
        [line] = re.findall(r"^\s+(curl -X POST .*/allocate .*)$", text, re.MULTILINE)
        assert shlex.split(line)
        run = subprocess.run(["sh", "-c", line], capture_output=True, check=True, timeout=60)
        assert b"sandbox_id" in run.stdout
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def test_pages_of_the_origins_that_are_named_may_call_and_no_others(tmp_path: Path) -> None:
    origin, call = "https://editor.example.com", "/api/v1/projects/x/sandbox/status"
    asked = {
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "authorization",
    }
    environment = {"CORS_ORIGINS": f"https://other.example.com, {origin}"}
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        for page, allowed in ((origin, origin), ("https://evil.example.com", None)):
            before = httpx.options(f"{server.url}{call}", headers={"Origin": page} | asked)
            answer = httpx.get(f"{server.url}{call}", headers={"Origin": page}, timeout=60)
            assert answer.json()["error"]["code"] == "LOGIN_REQUIRED"
            for each in (before, answer):
                assert each.headers.get("Access-Control-Allow-Origin") == allowed, each.text
                assert each.headers["X-Request-ID"], "preflights too"
                assert each.headers["X-Content-Type-Options"] == "nosniff"
            assert before.is_success == (allowed is not None)
            assert "Retry-After" in answer.headers["Access-Control-Expose-Headers"]
