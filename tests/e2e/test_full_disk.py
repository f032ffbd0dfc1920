"""A data dir without room, and one that is read-only: what callers and operators are told."""

import time
from pathlib import Path

import httpx
import pytest

from sandyard.entrypoints.server import free_port
from tests.disks import small_disk
from tests.servers import run_sandyard, sandyard_serve


def test_a_full_disk_is_told_by_readyz_and_recovers_by_itself(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path, megabytes=16) as disk,
        sandyard_serve(disk.path / "data", environment={"PARTS": "broker"}) as server,
    ):
        httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin).raise_for_status()
        disk.fill()
        ready = httpx.get(f"{server.url}/readyz")
        assert ready.status_code == 503
        told = ready.json()["error"]
        assert "the broker's sqlite engine" in told["message"]
        assert "its disk is full" in told["message"]
        assert told["details"] == {"engine": "sqlite", "part": "broker"}
        headers = server.track | {"X-Track-ID": "t"}
        refused = httpx.post(f"{server.url}/v1/allocate", headers=headers)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        assert "its disk is full" in refused.json()["error"]["message"]
        assert httpx.get(f"{server.url}/v1/admin/stats", headers=server.admin).is_success
        disk.free()
        deadline = time.monotonic() + 30
        while httpx.get(f"{server.url}/readyz").status_code != 200:
            assert time.monotonic() < deadline
        assert httpx.post(f"{server.url}/v1/allocate", headers=headers).status_code == 201


@pytest.mark.parametrize("name", ["data", "new"])
def test_a_read_only_data_dir_is_told_in_one_line(tmp_path: Path, name: str) -> None:
    with small_disk(tmp_path, megabytes=1) as disk:
        (disk.path / "data").mkdir()
        disk.make_read_only()
        data, log = disk.path / name, tmp_path / "log"
        process = run_sandyard(
            "serve", "--data-dir", str(data), "--port", str(free_port()), log=log
        )
        assert process.wait(60) == 1
        assert process.stdout is not None
        process.stdout.close()
        [line] = log.read_text().splitlines()
        assert line.startswith(f"sandyard: The data dir {data} can't be written")
        assert "Read-only file system" in line
