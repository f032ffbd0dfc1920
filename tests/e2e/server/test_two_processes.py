"""The Broker and Telemetry in one process, what tenants ask for in another: each may die alone."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import (
    SECRETS,
    START_SEC,
    ServerProcess,
    run_sandyard,
    sandyard_serve,
    wait_for_pool,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with sandyard_serve(tmp_path_factory.mktemp("two") / "data") as server:
        wait_for_pool(server)
        yield server


def claim(server: ServerProcess, track: str) -> int:
    headers = server.track | {"X-Track-ID": track}
    return httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=60).status_code


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SEC
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def test_claims_go_on_while_the_tenants_process_is_stalled(server: ServerProcess) -> None:
    os.kill(server.tenants_pid, signal.SIGSTOP)
    try:
        assert claim(server, "stalled") == 201
        began = time.monotonic()
        with pytest.raises(httpx.ReadTimeout):  # it is not known to be dead: a call to it waits
            httpx.get(f"{server.url}/api/v1/me", timeout=0.5)
        ready = httpx.get(f"{server.url}/readyz", timeout=60)
        assert time.monotonic() - began < 20
        told, why = ready.json()["error"], "The tenants' process does not respond."
        assert told["details"]["parts"] == dict.fromkeys(("platform", "previews"), why)
        engines = "the platform's sqlite engine, the previews' sqlite engine"
        assert told["message"] == f"Not ready: {engines}. {why}"
        assert "pool_total 25.0" in httpx.get(f"{server.url}/metrics", timeout=60).text
    finally:
        os.kill(server.tenants_pid, signal.SIGCONT)
    assert httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200


def test_claims_go_on_while_the_tenants_process_is_started_again(server: ServerProcess) -> None:
    me, first = f"{server.url}/api/v1/me", server.tenants_pid
    for track in ("died", "died-again"):  # after the second time there is a pause
        os.kill(server.tenants_pid, signal.SIGKILL)
        until(lambda: httpx.get(me, timeout=60).status_code == 503)
        away = httpx.get(me, timeout=60)
        assert (away.status_code, away.headers["Retry-After"]) == (503, "1")
        assert away.json()["error"]["request_id"] == away.headers["X-Request-ID"]
        ready = httpx.get(f"{server.url}/readyz", timeout=60).json()
        assert list(ready["error"]["details"]["parts"]) == ["platform", "previews"]
        page = httpx.get(f"{server.url}/console", headers={"Accept": "text/html"}, timeout=60)
        assert (page.status_code, page.headers["Content-Type"]) == (503, "text/html; charset=utf-8")
        assert claim(server, track) == 201
        until(lambda: httpx.get(me, timeout=60).status_code == 401)
    assert server.tenants_pid != first
    assert httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200
    assert "the tenants' process ended, and is started again" in server.log.read_text()


def test_pages_about_all_parts_cover_both_processes(server: ServerProcess) -> None:
    httpx.get(f"{server.url}/api/v1/me", timeout=60)
    assert claim(server, "measured") == 201
    metrics = httpx.get(f"{server.url}/metrics", timeout=60).text
    names = [line.split(" ")[2] for line in metrics.splitlines() if line.startswith("# TYPE ")]
    assert len(names) == len(set(names))
    assert 'request_latency_seconds_count{method="GET",route="/api/v1/me",status="401"}' in metrics
    assert 'request_latency_seconds_count{method="POST",route="/v1/allocate"' in metrics
    assert {"sandyard_previews_active", "pool_total"} <= set(names)
    document = httpx.get(f"{server.url}/openapi.json", timeout=60).json()
    assert {"/v1/allocate", "/telemetry/v1/data", "/api/v1/me"} <= document["paths"].keys()


def test_a_server_that_is_killed_leaves_no_process_and_starts_again_at_once(
    tmp_path: Path,
) -> None:
    with sandyard_serve(tmp_path / "data") as server:
        tenants = server.tenants_pid
        server.kill()
        with sandyard_serve(tmp_path / "data") as again:
            assert is_gone(tenants)
            assert httpx.get(f"{again.url}/api/v1/me", timeout=60).status_code == 401
            tenants = again.tenants_pid
            assert again.stop() == 0
    assert is_gone(tenants)


@pytest.mark.parametrize("parts", ["broker,telemetry", "platform,previews"])
def test_parts_of_one_kind_need_one_process(tmp_path: Path, parts: str) -> None:
    with sandyard_serve(tmp_path / "data", environment={"PARTS": parts}) as server:
        pid = server.process.pid
        assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""
        assert httpx.get(f"{server.url}/console", timeout=60).status_code == 303


def test_a_mistake_in_the_settings_of_tenants_stops_the_start_with_one_line(
    tmp_path: Path,
) -> None:
    process = run_sandyard(
        *("serve", "--port", str(free_port()), "--data-dir", str(tmp_path / "data")),
        environment=SECRETS | {"SANDBOX_RUNTIME": "e2b"},
        log=tmp_path / "log",
    )
    process.communicate(timeout=60)
    assert process.returncode == 1
    [line] = [each for each in (tmp_path / "log").read_text().splitlines() if each[0] != "{"]
    assert line == "sandyard: E2B_API_KEY: must be set for SANDBOX_RUNTIME=e2b"


def test_a_server_whose_keeper_was_killed_stops(tmp_path: Path) -> None:
    with sandyard_serve(tmp_path / "data") as server:
        tenants = server.tenants_pid
        keeper = int(Path(f"/proc/{tenants}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(keeper, signal.SIGKILL)
        assert server.process.wait(60) != 0
        assert is_gone(tenants)
