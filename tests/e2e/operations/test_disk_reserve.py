"""Sandboxes never use the disk's reserve, and claims go on when they try."""

import os
from pathlib import Path

import httpx
import pytest

from tests.e2e.platform.test_crash import new_sandbox
from tests.support.servers.processes import ServerProcess, sandyard_serve, wait_for_pool
from tests.support.servers.users import Person, signed_up, until
from tests.support.storage.disks import small_disk

PACED = "for n in $(seq 200); do head -c 4M /dev/urandom > f$n; sleep 0.03; done; sleep 600"
FAST = "cat /dev/zero > large; sleep 600"


def claim(server: ServerProcess, track: str) -> int:
    headers = server.track | {"X-Track-ID": track}
    return httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=60).status_code


def state_of(person: Person, sandbox_id: str) -> dict[str, str]:
    found: dict[str, str] = person.call("GET", f"/sandboxes/{sandbox_id}")
    return found


def free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


@pytest.mark.parametrize(
    ("megabytes", "reserve_gb", "command"),
    [
        (420, 0.2, PACED),
        pytest.param(3000, 1.0, FAST, marks=pytest.mark.torture),
    ],
)
def test_a_sandbox_that_fills_the_disk_is_ended_and_nobody_else(
    tmp_path: Path, megabytes: int, reserve_gb: float, command: str
) -> None:
    settings = {"DISK_RESERVE_GB": str(reserve_gb), "SANDBOX_STORAGE_GB": "4"}
    with (
        small_disk(tmp_path, megabytes=megabytes) as disk,
        sandyard_serve(disk.path / "data", environment=settings) as server,
    ):
        wait_for_pool(server)
        ann, bob = (signed_up(server, each, mail=n) for n, each in enumerate(("ann", "bob"), 1))
        quiet, greedy = new_sandbox(bob, "quiet"), new_sandbox(ann, "greedy")
        for person, sandbox_id in ((bob, quiet), (ann, greedy)):
            person.call("POST", f"/sandboxes/{sandbox_id}/start")
        body = {"command": command, "background": True}
        ann.call("POST", f"/sandboxes/{greedy}/commands", body, expect=201)
        claims, least = [], free_bytes(disk.path)
        while (state := state_of(ann, greedy))["status"] == "running":
            claims.append(claim(server, "one"))
            least = min(least, free_bytes(disk.path))
        assert "the server's disk was nearly full" in state["status_reason"]
        assert least > 0
        assert {*claims} <= {200, 201}
        assert state_of(bob, quiet)["status"] == "running"
        until(lambda: free_bytes(disk.path) > reserve_gb * 2**30)
        bob.call("POST", f"/sandboxes/{new_sandbox(bob, 'next')}/start")


def test_below_the_reserve_nothing_is_started_or_stored_and_claims_go_on(tmp_path: Path) -> None:
    settings = {"DISK_RESERVE_GB": "0.1", "SANDBOX_STORAGE_GB": "0.05"}
    with (
        small_disk(tmp_path, megabytes=200) as disk,
        sandyard_serve(disk.path / "data", environment=settings) as server,
    ):
        wait_for_pool(server)
        ann = signed_up(server, "ann", mail=1)
        box = new_sandbox(ann, "box")
        filler = disk.path / "filler"
        filler.write_bytes(bytes(free_bytes(disk.path) - 60 * 2**20))
        refused = ann.call("POST", f"/sandboxes/{box}/start", expect=503)["error"]
        assert refused["code"] == "DISK_FULL"
        assert refused["details"]["free_bytes"] < refused["details"]["reserve_bytes"]
        assert state_of(ann, box)["status"] == "created"
        assert claim(server, "one") == 201
        filler.unlink()
        ann.call("POST", f"/sandboxes/{box}/start")
