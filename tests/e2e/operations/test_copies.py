"""A backup that is restored as a copy: nothing outside is changed from it."""

import time
from pathlib import Path

import httpx

from tests.support.servers.processes import (
    ServerProcess,
    csp_simulator,
    run_sandyard,
    sandyard_serve,
    wait_for_pool,
)

EVERY_SECOND = {
    "SYNC_INTERVAL_SEC": "1",
    "CLEANUP_INTERVAL_SEC": "1",
    "POOL_INTERVAL_SEC": "1",
    "POOL_MIN_AVAILABLE": "9",
    "POOL_CREATE_PER_HOUR": "9",
}


def test_a_server_on_a_copy_calls_neither_the_provider_nor_a_webhook(tmp_path: Path) -> None:
    copy, file = tmp_path / "copy", str(tmp_path / "backup")
    with csp_simulator(tmp_path, "--count", "3") as provider:
        settings = {
            "PARTS": "broker",
            "CSP_BASE_URL": provider,
            "CSP_API_TOKEN": "sesame",
            "WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
        }
        with sandyard_serve(tmp_path / "data", environment=settings) as server:
            wait_for_pool(server)
            lease = allocate(server.url, server.track)
            hook = operate(server, "POST", "webhooks", {"url": f"{provider}/hook"}).json()
        finish("backup", file, "--data-dir", str(tmp_path / "data"), folder=tmp_path)
        finish("restore", file, "--as-copy", "--data-dir", str(copy), folder=tmp_path)
        before = httpx.get(f"{provider}/_sim", timeout=60).json()
        with sandyard_serve(copy, environment=settings | EVERY_SECOND) as server:
            assert allocate(server.url, server.track) == lease
            path = f"{server.url}/v1/sandboxes/{lease}/mark-for-deletion"
            marked = httpx.post(path, headers=server.track | {"X-Track-ID": "ann"}, timeout=60)
            assert marked.is_success, marked.text
            sync = httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60)
            assert not sync.is_success
            [event] = operate(server, "GET", "events?limit=1").json()["events"]
            again = {"event_id": event["event_id"]}
            sent = operate(server, "POST", f"webhooks/{hook['webhook_id']}/replay", again)
            assert (sent.status_code, sent.json()["error"]["code"]) == (409, "WEBHOOKS_OFF")
            time.sleep(4)  # each of the jobs would have run
            counts = httpx.get(f"{server.url}/v1/admin/stats", headers=server.admin, timeout=60)
        assert httpx.get(f"{provider}/_sim", timeout=60).json() == before
    assert counts.json()["pending_deletion"] == 1
    assert counts.json()["stale"] == 0
    with sandyard_serve(copy, environment={"PARTS": "broker"}) as server:
        assert server.process.poll() is None, "without CSP_BASE_URL it starts too"


def allocate(url: str, track: dict[str, str]) -> str:
    headers = track | {"X-Track-ID": "ann"}
    answer = httpx.post(f"{url}/v1/allocate", headers=headers, timeout=60).raise_for_status()
    return str(answer.json()["sandbox_id"])


def operate(server: ServerProcess, method: str, path: str, body: object = None) -> httpx.Response:
    url = f"{server.url}/v1/admin/{path}"
    return httpx.request(method, url, json=body, headers=server.admin, timeout=60)


def finish(*arguments: str, folder: Path) -> None:
    process = run_sandyard(*arguments, log=folder / "log")
    process.communicate(timeout=60)
    assert process.returncode == 0, (folder / "log").read_text()
