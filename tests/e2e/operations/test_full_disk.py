"""An engine that takes no writes: what callers and operators are told."""

import json
import time
from pathlib import Path

import asyncpg
import httpx
import pytest

from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import (
    run_command,
    run_sandyard,
    sandyard_serve,
)
from tests.support.storage.disks import small_disk
from tests.support.storage.engines import create_database

WAIT_SEC = 30


def wait_for_readyz(url: str, status: int, telling: str = "") -> httpx.Response:
    deadline = time.monotonic() + WAIT_SEC
    while True:
        answer = httpx.get(f"{url}/readyz", timeout=60)
        if answer.status_code == status and telling in answer.text:
            return answer
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)


def test_a_full_disk_is_told_by_readyz_and_recovers_by_itself(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path, megabytes=16) as disk,
        sandyard_serve(disk.path, environment={"PARTS": "broker"}) as server,
    ):
        httpx.post(
            f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60
        ).raise_for_status()
        disk.fill()
        told = wait_for_readyz(server.url, 503).json()["error"]
        assert "the broker's sqlite engine" in told["message"]
        assert "its disk is full" in told["message"]
        assert (told["details"]["engine"], told["details"]["part"]) == ("sqlite", "broker")
        assert list(told["details"]["parts"]) == ["broker"]
        headers = server.track | {"X-Track-ID": "t"}
        refused = httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=60)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        assert "its disk is full" in refused.json()["error"]["message"]
        assert httpx.get(
            f"{server.url}/v1/admin/stats", headers=server.admin, timeout=60
        ).is_success
        disk.free()
        wait_for_readyz(server.url, 200)
        assert (
            httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=60).status_code == 201
        )


def test_a_log_on_the_full_disk_hurts_no_answer(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path, megabytes=16) as disk,
        sandyard_serve(disk.path / "data", environment={"PARTS": "broker"}) as server,
    ):
        assert server.log.is_relative_to(disk.path)
        httpx.post(
            f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60
        ).raise_for_status()
        disk.fill()
        wait_for_readyz(server.url, 503)
        for _ in range(50):
            for path, status in (("/readyz", 503), ("/v1/nothing", 404), ("/v1/admin/stats", 200)):
                answer = httpx.get(f"{server.url}{path}", headers=server.admin, timeout=60)
                assert answer.status_code == status
        disk.free()
        wait_for_readyz(server.url, 200)
        assert server.stop() == 0
        lines = [json.loads(each) for each in server.log.read_text().splitlines() if is_whole(each)]
        told = [each for each in lines if each["message"] == "log lines could not be written"]
        assert sum(each["lost"] for each in told) > 50
        assert [each["status"] for each in lines if each.get("route") == "/readyz"][-1] == 200


def is_whole(line: str) -> bool:
    """The last line before the disk was full may have been cut."""
    return line.startswith("{") and line.endswith("}")


async def test_a_read_only_postgresql_is_told_by_readyz_and_recovers_by_itself(
    tmp_path: Path, postgres_url: str
) -> None:
    database_url = await create_database(postgres_url)
    environment = {"DATABASE_URL": database_url, "PARTS": "telemetry"}
    run_command("db", "upgrade", environment=environment).check_returncode()
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        await set_read_only(database_url, "on")
        told = wait_for_readyz(server.url, 503, "it is read-only").json()["error"]
        assert "the telemetry's postgresql engine" in told["message"]
        await set_read_only(database_url, "off")
        wait_for_readyz(server.url, 200)


async def set_read_only(database_url: str, value: str) -> None:
    """For connections that are made from now on; there are no others then."""
    connection = await asyncpg.connect(database_url)
    try:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute("SET default_transaction_read_only = off")
        await connection.execute(
            f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}'
        )
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = $1 AND pid <> pg_backend_pid()",
            name,
        )
    finally:
        await connection.close()


@pytest.mark.parametrize(("name", "workers"), [("data", None), ("new", None), ("data", "2")])
async def test_a_read_only_data_dir_is_told_in_one_line(
    tmp_path: Path, postgres_url: str, name: str, workers: str | None
) -> None:
    shared = {"DATABASE_URL": postgres_url, "CSP_BASE_URL": "http://127.0.0.1:9"}
    with small_disk(tmp_path, megabytes=1) as disk:
        (disk.path / "data").mkdir()
        disk.make_read_only()
        data, log = disk.path / name, tmp_path / "log"
        process = run_sandyard(
            *("serve", "--data-dir", str(data), "--port", str(free_port())),
            *(("--workers", workers) if workers else ()),
            environment=shared if workers else {},
            log=log,
        )
        assert process.wait(60) == 1
        assert process.stdout is not None
        process.stdout.close()
        [line] = log.read_text().splitlines()
        assert line.startswith(f"sandyard: The data dir {data} can't be written")
        assert "Read-only file system" in line
