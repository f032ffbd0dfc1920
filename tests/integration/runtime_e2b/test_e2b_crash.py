"""`kill -9` of a server whose sandboxes run at E2B: what runs is adopted, nothing is left over."""

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.e2b.double import API_KEY
from tests.support.e2b.machines import E2bMachines
from tests.support.servers.processes import ServerProcess, sandyard_serve
from tests.support.servers.users import Person, signed_up


def new_sandbox(person: Person, name: str) -> str:
    found = person.call("GET", "/templates?visibility=official&q=static")["templates"]
    body = {"name": name, "template_id": found[0]["template_id"], "cpu_spec": 1, "memory_spec": 1}
    return str(person.call("POST", "/sandboxes", body, expect=201)["sandbox_id"])


def look(person: Person, sandbox_id: str) -> Any:
    return person.call("GET", f"/sandboxes/{sandbox_id}")


def attempts_at(e2b: str) -> list[tuple[str, str]]:
    found = httpx.get(f"{e2b}/_double", timeout=60).json()["sandboxes"]
    return [(each["metadata"]["id"], each["metadata"]["attempt"]) for each in found]


def kill_in_the_middle_of_a_start(
    server: ServerProcess, person: Person, sandbox_id: str, e2b: str
) -> None:
    """When E2B has made the machine, and the server has not heard of it."""

    def start() -> None:
        with suppress(httpx.TransportError):
            url = f"{server.url}/api/v1/sandboxes/{sandbox_id}/start"
            httpx.post(url, headers=person.headers, timeout=30)

    httpx.put(
        f"{e2b}/_double/faults", json=[{"kind": "hang_after", "operation": "create"}], timeout=60
    )
    starting = threading.Thread(target=start)
    starting.start()
    until = time.monotonic() + 60
    while (sandbox_id, "1") not in attempts_at(e2b):
        assert time.monotonic() < until
        time.sleep(0.02)
    server.kill()
    starting.join()
    httpx.put(f"{e2b}/_double/faults", json=[], timeout=60)


def crash_and_restart(e2b: str, data: Path) -> None:
    environment = {
        "PARTS": "platform",
        "SANDBOX_RUNTIME": "e2b",
        "E2B_API_KEY": API_KEY,
        "E2B_API_URL": e2b,
        "E2B_SANDBOX_URL": e2b,
        "ENDS_INTERVAL_SEC": "1",
    }
    with sandyard_serve(data, environment=environment) as server:
        ann = signed_up(server, "ann", mail=1)
        lasting, lost = new_sandbox(ann, "lasting"), new_sandbox(ann, "lost")
        url = ann.call("POST", f"/sandboxes/{lasting}/start")["preview_url"]
        kill_in_the_middle_of_a_start(server, ann, lost, e2b)
    assert attempts_at(e2b) == [(lasting, "1"), (lost, "1")]
    with sandyard_serve(data, environment=environment) as server:
        ann.url = server.url
        until = time.monotonic() + 60
        while (now := look(ann, lost))["status"] != "stopped":
            assert time.monotonic() < until, now
            time.sleep(0.1)
        assert now["status_reason"].startswith("SUPERVISOR_LOST")
        assert attempts_at(e2b) == [(lasting, "1")]
        adopted = look(ann, lasting)
        assert (adopted["status"], adopted["preview_url"]) == ("running", url)
        ann.call("POST", f"/sandboxes/{lost}/start")
        assert attempts_at(e2b) == [(lasting, "1"), (lost, "2")]
        for sandbox_id in (lasting, lost):
            ann.call("POST", f"/sandboxes/{sandbox_id}/stop")
        assert attempts_at(e2b) == []
        assert ann.call("GET", "/usage?is_open=true")["usage"] == []


@pytest.mark.timeout(300)
async def test_a_killed_server_leaves_nothing_at_e2b_that_its_next_one_does_not_find(
    double: E2bMachines, tmp_path: Path
) -> None:
    await asyncio.to_thread(crash_and_restart, double.url, tmp_path / "data")
