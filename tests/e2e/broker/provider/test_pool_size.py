"""A server that keeps its pool at its size, run after run."""

import time
from pathlib import Path

import httpx

from tests.support.servers.processes import (
    SECRETS,
    ServerProcess,
    csp_simulator,
    run_sandyard,
    sandyard_serve,
)

SETTINGS = {
    "PARTS": "broker",
    "POOL_MIN_AVAILABLE": "2",
    "POOL_MAX_TOTAL": "6",
    "POOL_CREATE_PER_HOUR": "10",
    "POOL_INTERVAL_SEC": "1",
}


def until_available(server: ServerProcess, count: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        stats = httpx.get(f"{server.url}/v1/admin/stats", headers=server.admin, timeout=30).json()
        if stats["available"] == count:
            return
        assert time.monotonic() < deadline, stats
        time.sleep(0.2)


def test_what_is_leased_is_made_up_for_again_and_again(tmp_path: Path) -> None:
    with csp_simulator(tmp_path, "--count", "1") as provider:
        settings = SETTINGS | {"CSP_BASE_URL": provider}
        with sandyard_serve(tmp_path / "data", environment=settings) as server:
            for number in range(3):
                until_available(server, 2)
                headers = server.track | {"X-Track-ID": f"track-{number}"}
                leased = httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=30)
                assert leased.status_code == 201, leased.text
            until_available(server, 2)
        once = run_sandyard(
            *("jobs", "run", "pool", "--data-dir", str(tmp_path / "data")),
            environment=SECRETS | settings,
            log=tmp_path / "once.log",
        )
        output, _ = once.communicate(timeout=60)
        assert once.returncode == 0, (tmp_path / "once.log").read_text()
        assert b'"missing":0' in output
