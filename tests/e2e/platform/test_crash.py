"""`kill -9` of the server while sandboxes run: no orphan, and no meter left running."""

import asyncio
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from sandyard.kit.sql.database import SqliteDatabase
from tests.support.platform.event_replay import assert_history
from tests.support.servers.processes import run_command, sandyard_serve
from tests.support.servers.sandbox_programs import FoundProgram, find_program, page_of
from tests.support.servers.users import Person, signed_up

ENVIRONMENT = {"PARTS": "platform", "ENDS_INTERVAL_SEC": "1", "QUOTA_SANDBOXES": "10"}


def new_sandbox(person: Person, name: str, **changes: Any) -> str:
    [template] = [
        each
        for each in person.call("GET", "/templates?visibility=official")["templates"]
        if each["repository_url"] == "builtin:static"
    ]
    body = {
        "name": name,
        "template_id": template["template_id"],
        "memory_spec": 0.5,
        "cpu_spec": 1,
    } | changes
    return str(person.call("POST", "/sandboxes", body, expect=201)["sandbox_id"])


def status_of(person: Person, sandbox_id: str) -> str:
    return str(person.call("GET", f"/sandboxes/{sandbox_id}")["status"])


def eventually(person: Person, sandbox_id: str, status: str, *, within_sec: float = 60) -> None:
    deadline = time.monotonic() + within_sec
    while (now := status_of(person, sandbox_id)) != status:
        assert time.monotonic() < deadline, f"it is still {now}"
        time.sleep(0.1)


def until_unreachable(program: FoundProgram) -> float:
    """The time at which nobody answered any more."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            program.get()
        except httpx.TransportError:
            return time.monotonic()
        time.sleep(0.1)
    raise AssertionError("it still answers")


def supervisors(data_dir: Path) -> list[psutil.Process]:
    """The programs that run from this data dir, whoever started them."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any("supervisor" in word for word in words) and any(str(data_dir) in w for w in words):
            found.append(process)
    return found


def open_usages(data_dir: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(data_dir / "platform.db") as database:
        return database.execute(
            "SELECT u.sandbox_id, s.status FROM sandbox_usage u JOIN sandboxes s "
            "ON s.sandbox_id = u.sandbox_id WHERE u.end_time IS NULL"
        ).fetchall()


def assert_folded(data_dir: Path) -> None:
    """The events of sandboxes, usages and bills lead to what is stored, whoever was killed when."""

    async def check() -> None:
        database = SqliteDatabase(data_dir / "platform.db", schema="platform")
        try:
            assert await assert_history(database) > 0
        finally:
            await database.close()

    asyncio.run(check())


def test_running_ones_are_adopted_and_ended_ones_are_closed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with sandyard_serve(data, environment=ENVIRONMENT) as server:
        ann = signed_up(server, "ann", mail=1)
        lasting = new_sandbox(ann, "lasting")
        ending = new_sandbox(ann, "ending", max_running_seconds=2)
        lost = new_sandbox(ann, "lost")
        for each in (lasting, lost):
            ann.call("POST", f"/sandboxes/{each}/start")
        begun = time.monotonic()
        ann.call("POST", f"/sandboxes/{ending}/start")
        programs = {each: asyncio.run(find_program(data, each)) for each in (lasting, lost, ending)}
        server.kill()
    # Without a server: what runs goes on serving, and the deadline holds.
    assert programs[lasting].get().status_code == 200
    longest = until_unreachable(programs[ending]) - begun
    for process in supervisors(data):
        if lost in " ".join(process.info["cmdline"]):
            process.kill()
    with sandyard_serve(data, environment=ENVIRONMENT) as server:
        ann.url = server.url
        eventually(ann, ending, "timeout")
        eventually(ann, lost, "stopped")
        assert status_of(ann, lasting) == "running"
        preview_url = ann.call("GET", f"/sandboxes/{lasting}")["preview_url"]
        assert page_of(ann, preview_url).status_code == 200
        with pytest.raises(httpx.TransportError):
            programs[lost].get()
        usage = ann.call("GET", f"/usage?sandbox_id={ending}")["usage"]
        [seconds] = [each["seconds"] for each in usage]
        assert 2 <= seconds <= longest + 1, "the true end is kept"
        assert open_usages(data) == [(lasting, "running")]
        ann.call("POST", f"/sandboxes/{lasting}/stop")
        assert open_usages(data) == []
    assert supervisors(data) == []
    assert_folded(data)


def test_a_server_killed_in_the_middle_of_starts_leaves_none_starting(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with sandyard_serve(data, environment=ENVIRONMENT) as server:
        ann = signed_up(server, "ann", mail=1)
        boxes = [new_sandbox(ann, f"box {number}") for number in range(4)]

        def start(sandbox_id: str) -> None:
            with suppress(httpx.TransportError):
                httpx.post(
                    f"{server.url}/api/v1/sandboxes/{sandbox_id}/start",
                    headers=ann.headers,
                    timeout=20,
                )

        starting = [threading.Thread(target=start, args=(each,)) for each in boxes]
        for thread in starting:
            thread.start()
        time.sleep(0.25)
        server.kill()
        for thread in starting:
            thread.join()
    with sandyard_serve(data, environment=ENVIRONMENT) as server:
        ann.url = server.url
        deadline = time.monotonic() + 60
        while "starting" in (states := {status_of(ann, each) for each in boxes}):
            assert time.monotonic() < deadline, states
            time.sleep(0.2)
        assert states <= {"created", "running", "stopped"}
        for sandbox_id, status in open_usages(data):
            assert status == "running", sandbox_id
        for each in boxes:
            sandbox = ann.call("GET", f"/sandboxes/{each}")
            if sandbox["status"] == "running":
                assert page_of(ann, sandbox["preview_url"]).status_code == 200
            ann.call("DELETE", f"/sandboxes/{each}")
    assert supervisors(data) == []
    assert open_usages(data) == []
    assert_folded(data)


def test_an_owner_may_be_told_apart_by_key_and_login(tmp_path: Path) -> None:
    """Two accounts on every route of sandboxes, by login and by key: the other's are 404."""
    with sandyard_serve(tmp_path / "data", environment=ENVIRONMENT) as server:
        ann, bob = signed_up(server, "ann", mail=1), signed_up(server, "bob", mail=2)
        key = bob.call("POST", "/api-keys", {"name": "k"}, expect=201)["api_key"]
        hers = new_sandbox(ann, "hers")
        ann.call("POST", f"/sandboxes/{hers}/start")
        for headers in (bob.headers, {"X-API-Key": key}):
            bob.headers = headers
            for method, path, body in (
                ("GET", "", None),
                ("PATCH", "", {"name": "mine"}),
                ("DELETE", "", None),
                ("POST", "/start", None),
                ("POST", "/stop", None),
                ("GET", "/logs", None),
                ("GET", "/logs?follow=true", None),
                ("GET", "/metrics", None),
            ):
                answer = bob.call(method, f"/sandboxes/{hers}{path}", body, expect=404)
                assert answer["error"]["code"] == "SANDBOX_UNKNOWN"
            for listing in (
                "/sandboxes",
                f"/usage?sandbox_id={hers}",
                "/usage",
                f"/billing?sandbox_id={hers}",
                "/billing",
            ):
                body = bob.call("GET", listing)
                assert next(iter(body.values())) == []
        assert status_of(ann, hers) == "running"
        ann.call("DELETE", f"/sandboxes/{hers}")


def test_the_command_line_runs_the_billing_job_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with sandyard_serve(data, environment=ENVIRONMENT) as server:
        ann = signed_up(server, "ann", mail=1)
        box = new_sandbox(ann, "box")
        ann.call("POST", f"/sandboxes/{box}/start")
        time.sleep(1.1)
        ann.call("POST", f"/sandboxes/{box}/stop")
        assert server.stop() == 0
    for bills in (1, 0):
        ran = run_command("jobs", "run", "billing", "--data-dir", str(data))
        assert f'"bills":{bills}' in ran.stdout
    assert_folded(data)


def test_a_server_that_stops_ends_the_logs_that_are_followed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with sandyard_serve(data, environment=ENVIRONMENT | {"DRAIN_SEC": "0"}) as server:
        ann = signed_up(server, "ann", mail=1)
        box = new_sandbox(ann, "followed")
        page = ann.call("POST", f"/sandboxes/{box}/start")["preview_url"]
        url = f"{server.url}/api/v1/sandboxes/{box}/logs?follow=true"
        with httpx.stream("GET", url, headers=ann.headers, timeout=30) as following:
            lines = following.iter_lines()
            page_of(ann, page)
            assert any("GET / " in line for line in lines)
            started = time.monotonic()
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            assert list(lines) == [], "the answer comes to its proper end"
        stopping.join()
        assert time.monotonic() - started < 60, "nobody waits for the program's end"
        assert server.process.returncode == 0
        assert "Traceback" not in server.log.read_text()
    with sandyard_serve(data, environment=ENVIRONMENT) as server:
        ann.url = server.url
        ann.call("POST", f"/sandboxes/{box}/stop")
    assert supervisors(data) == []
