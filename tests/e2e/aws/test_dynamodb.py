"""`sandyard` on DynamoDB as processes: tables, a start before its table, `verify`."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import (
    ServerProcess,
    csp_simulator,
    run_sandyard,
    sandyard_serve,
    wait_until_ready,
)
from tests.support.storage.engines import AWS_ENVIRONMENT, dynamo_server


def run(*arguments: str, environment: dict[str, str], tmp_path: Path) -> tuple[int, str, str]:
    log = tmp_path / "stderr"
    log.unlink(missing_ok=True)
    process = run_sandyard(*arguments, environment=environment, log=log)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output.decode(), log.read_text()


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    with dynamo_server() as url:
        yield {
            **AWS_ENVIRONMENT,
            "POOL_STORE": "dynamodb",
            "DDB_ENDPOINT_URL": url,
            "DDB_TABLE_NAME": f"Pool-{free_port()}",
        }


async def test_from_no_table_to_a_verified_pool(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with csp_simulator(tmp_path, "--count", "60") as provider:
        settings = environment | {"CSP_BASE_URL": provider}
        with sandyard_serve(
            tmp_path / "data", environment=settings, ready_path="/healthz"
        ) as server:
            response = httpx.get(f"{server.url}/readyz", timeout=60)
            assert response.status_code == 503
            assert "sandyard tables create" in response.json()["error"]["message"]
            call = httpx.post(
                f"{server.url}/v1/allocate", headers=server.track | {"X-Track-ID": "t"}, timeout=60
            )
            assert call.status_code == 503
            code, output, _ = run("tables", "create", environment=settings, tmp_path=tmp_path)
            assert (code, outcomes(output)) == (0, ["created"] * 2)
            code, output, _ = run("tables", "create", environment=settings, tmp_path=tmp_path)
            assert (code, outcomes(output)) == (0, ["exists"] * 2)
            code, output, _ = run("tables", "check", environment=settings, tmp_path=tmp_path)
            assert (code, outcomes(output)) == (0, ["fit for use"] * 2)
            wait_until_ready(server.url, server.process)
            sync = httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=30)
            assert sync.json()["added"] == 60
            await _claim_and_give_up(server.url, server.track)
            cleanup = httpx.post(f"{server.url}/v1/admin/cleanup", headers=server.admin, timeout=60)
            assert cleanup.json()["deleted"] == 10
            cleaned_at = int(time.time())
            code, output, _ = run("verify", environment=settings, tmp_path=tmp_path)
            assert code == 0
            assert output == "50 sandboxes, 30 leases, 10 tombstones: no problems\n"
            assert await _total_counted_after(cleaned_at, server) == 50
            assert "Traceback" not in server.log.read_text()


async def _total_counted_after(moment: int, server: ServerProcess) -> int:
    """What was counted before it is told for a quarter of a minute more."""
    async with asyncio.timeout(90):
        while True:
            stats = httpx.get(
                f"{server.url}/v1/admin/stats", headers=server.admin, timeout=60
            ).json()
            if stats["counted_at"] > moment:
                return int(stats["total"])
            await asyncio.sleep(0.5)


def outcomes(output: str) -> list[str]:
    """What was said of the pool's table and of the events'."""
    return [line.split(": ")[1] for line in output.splitlines()]


async def _claim_and_give_up(url: str, track: dict[str, str]) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        leases = await asyncio.gather(
            *(
                client.post("/v1/allocate", headers=track | {"X-Track-ID": f"t{n}"})
                for n in range(40)
            )
        )
        assert {lease.status_code for lease in leases} == {201}
        for n, lease in enumerate(leases[:10]):
            marked = await client.post(
                f"/v1/sandboxes/{lease.json()['sandbox_id']}/mark-for-deletion",
                headers=track | {"X-Track-ID": f"t{n}"},
            )
            assert marked.status_code == 200


@contextmanager
def web_server() -> Iterator[str]:
    """Something that answers, and is not DynamoDB."""

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_what_is_wrong_is_told_in_one_line(tmp_path: Path, environment: dict[str, str]) -> None:
    no_credentials = {name: value for name, value in environment.items() if "KEY" not in name} | {
        "HOME": str(tmp_path)
    }
    with web_server() as page:
        for settings, words in (
            (environment, "does not exist. Run `sandyard tables create`"),
            (environment | {"DDB_ENDPOINT_URL": page}, "does not respond like DynamoDB"),
            (environment | {"DDB_ENDPOINT_URL": "http://127.0.0.1:9"}, "does not respond in time"),
            (no_credentials, "No AWS credentials were found"),
        ):
            code, _, errors = run("tables", "check", environment=settings, tmp_path=tmp_path)
            assert code == 1
            assert words in errors
            assert errors.count("\n") == 1, errors


def test_a_server_without_credentials_starts_says_so_and_is_not_ready(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    settings = {name: value for name, value in environment.items() if "KEY" not in name}
    settings |= {"HOME": str(tmp_path), "CSP_BASE_URL": "http://127.0.0.1:9"}
    with sandyard_serve(tmp_path / "data", environment=settings, ready_path="/healthz") as server:
        response = httpx.get(f"{server.url}/readyz", timeout=60)
        assert response.status_code == 503
        assert "No AWS credentials" in response.json()["error"]["message"]
        lines = server.log.read_text().splitlines()
        assert sum("not ready yet: No AWS credentials" in line for line in lines) == 1
        assert "Traceback" not in server.log.read_text()
