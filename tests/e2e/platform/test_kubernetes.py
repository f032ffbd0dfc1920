"""Two servers on one PostgreSQL, one bucket and one cluster of three nodes: any of them serves any
call, and what one leaves behind the other finishes."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.e2e.platform.test_crash import new_sandbox
from tests.support.kubernetes.replicas import Load, Replicas, replicas
from tests.support.servers.sandbox_programs import page_of
from tests.support.servers.users import Person, until


@pytest.fixture
def found(tmp_path: Path, postgres_url: str) -> Iterator[Replicas]:
    with replicas(tmp_path, postgres_url) as found:
        yield found


def run_in(person: Person, sandbox_id: str, script: str) -> str:
    path, body = f"/sandboxes/{sandbox_id}/commands", {"command": ["sh", "-c", script]}
    return str(person.call("POST", path, body, expect=201)["result"]["stdout"])


def status_of(person: Person, sandbox_id: str) -> str:
    return str(person.call("GET", f"/sandboxes/{sandbox_id}")["status"])


def until_done(person: Person, path: str, *outcomes: int) -> httpx.Response:
    """The first response that reports no outage."""

    def call() -> httpx.Response | None:
        try:
            url = f"{person.url}/api/v1{path}"
            answer = httpx.post(url, headers=person.headers, timeout=90)
        except httpx.TransportError:
            return None
        assert answer.status_code in (200, *outcomes, 503), answer.text
        return None if answer.status_code == 503 else answer

    answer: httpx.Response = until(call, within_sec=180)
    return answer


def terminal_shows(person: Person, sandbox_id: str, line: bytes, expected: str) -> None:
    address = f"{person.url}/api/v1/sandboxes/{sandbox_id}/terminal".replace("http:", "ws:")
    with connect(address, additional_headers=person.headers, proxy=None) as terminal:
        terminal.send(line)
        shown = ""
        while expected not in shown:
            message = terminal.recv(timeout=60)
            shown += message.decode() if isinstance(message, bytes) else ""


def fork_of(person: Person, sandbox_id: str) -> str:
    key = person.call("POST", "/api-keys", {"name": "fork"}, expect=201)["api_key"]
    url = f"{person.url}/e2b/sandboxes/{sandbox_id}/fork"
    made = httpx.post(url, json={"count": 1}, headers={"X-API-Key": key}, timeout=240)
    assert made.status_code == 201, made.text
    return str(made.json()[0]["sandbox"]["sandboxID"])


@pytest.mark.timeout(600)
def test_what_a_killed_server_ran_another_serves(found: Replicas) -> None:
    ann = found.ann()
    elsewhere = Person(found.servers["other"].url, ann.headers)
    box = new_sandbox(ann, "box")
    path = f"/sandboxes/{box}"
    url = ann.call("POST", f"{path}/start")["preview_url"]
    assert page_of(elsewhere, url).status_code == 200
    run_in(elsewhere, box, "echo the content >kept")
    assert run_in(ann, box, "cat kept") == "the content\n"
    files = httpx.get(
        f"{elsewhere.url}/api/v1{path}/files?path=kept", headers=ann.headers, timeout=20
    )
    assert files.content == b"the content\n"
    logs = httpx.get(f"{elsewhere.url}/api/v1{path}/logs", headers=ann.headers, timeout=20)
    assert logs.status_code == 200
    terminal_shows(elsewhere, box, b"cat kept | tr a-z A-Z\n", "THE CONTENT")
    fork = fork_of(elsewhere, box)
    assert run_in(ann, fork, "cat kept") == "the content\n"
    project = ann.call("POST", "/projects", {"name": "site"}, expect=201)["project_id"]
    content = {"files": [{"path": "index.html", "content": "hello"}]}
    elsewhere.call("PUT", f"/projects/{project}/files", content)
    ann.call("POST", f"/projects/{project}/sync")
    elsewhere.call("POST", f"/projects/{project}/sync")
    found.kill("one")
    assert (status_of(elsewhere, box), page_of(elsewhere, url).status_code) == ("running", 200)
    found.cut_node(box, is_cut=True)
    assert status_of(elsewhere, box) == "running"
    found.cut_node(box, is_cut=False)
    assert run_in(elsewhere, box, "cat kept") == "the content\n"
    assert until_done(elsewhere, f"{path}/stop").json()["status"] == "stopped"
    elsewhere.call("POST", f"{path}/start")
    assert run_in(elsewhere, box, "cat kept") == "the content\n"
    for each in (box, fork):
        elsewhere.call("POST", f"/sandboxes/{each}/stop")
    assert found.check() == 4, "a sandbox twice, its fork and a preview once"


def _kill_a_server(found: Replicas, _box: str, *, is_on: bool) -> None:
    if is_on:
        found.kill("one")
    else:
        found.serve("one")


def _api_server_away(found: Replicas, _box: str, *, is_on: bool) -> None:
    api = found.serving.cluster.api
    found.serving.call(api.go_away if is_on else api.come_back)


def _node_cut_off(found: Replicas, box: str, *, is_on: bool) -> None:
    found.cut_node(box, is_cut=is_on)


def _store_away(found: Replicas, _box: str, *, is_on: bool) -> None:
    found.cut(found.to_store, is_cut=is_on)


def _database_away(found: Replicas, _box: str, *, is_on: bool) -> None:
    found.cut(found.to_database, is_cut=is_on)


def _drain(found: Replicas, box: str, *, is_on: bool) -> None:
    """Its Pod is asked to end; its owner starts it again."""
    if is_on:
        found.drain(box)
        return
    ann = Person(found.servers["other"].url, found.headers)
    until(lambda: status_of(ann, box) == "stopped", within_sec=120)
    until_done(ann, f"/sandboxes/{box}/start")


_TORTURE = (_kill_a_server, _api_server_away, _node_cut_off, _database_away, _drain)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "fault",
    [_store_away, *(pytest.param(each, marks=pytest.mark.torture) for each in _TORTURE)],
    ids=lambda fault: fault.__name__.strip("_"),
)
def test_under_load_nothing_is_lost_and_nothing_is_done_twice(
    found: Replicas, fault: Callable[..., None]
) -> None:
    ann = found.ann()
    elsewhere = Person(found.servers["other"].url, ann.headers)
    box, other = new_sandbox(ann, "box"), new_sandbox(ann, "other")
    for each in (box, other):
        ann.call("POST", f"/sandboxes/{each}/start")
    project = ann.call("POST", "/projects", {"name": "site"}, expect=201)["project_id"]
    content = {"files": [{"path": "index.html", "content": "hello"}]}
    ann.call("PUT", f"/projects/{project}/files", content)
    ann.call("POST", f"/projects/{project}/sync")
    with Load(found, ann, box).running() as load:
        load.until_acknowledged()
        fault(found, box, is_on=True)
        _answer(elsewhere, f"/sandboxes/{other}/stop")
        _answer(elsewhere, f"/projects/{project}/sync")
        fault(found, box, is_on=False)
        until_done(elsewhere, f"/sandboxes/{other}/stop", 409)
        until_done(elsewhere, f"/projects/{project}/sync")
        load.until_acknowledged()
    kept = run_in(elsewhere, box, "cat journal").split()
    assert set(load.acknowledged) <= set(kept), "an acknowledged line is lost"
    assert len(kept) == len(set(kept)), "a command has run twice"
    until_done(elsewhere, f"/sandboxes/{box}/stop")
    until_done(elsewhere, f"/sandboxes/{box}/start")
    assert run_in(elsewhere, box, "cat journal").split() == kept, "its files follow"
    until_done(elsewhere, f"/sandboxes/{box}/stop")
    _check_bills(elsewhere, box, other)
    found.check()


def _answer(person: Person, path: str) -> httpx.Response:
    """Whatever it is, while something is away."""
    try:
        return httpx.post(f"{person.url}/api/v1{path}", headers=person.headers, timeout=30)
    except httpx.TransportError:
        return httpx.Response(503)


def _check_bills(person: Person, *sandbox_ids: str) -> None:
    """Runs of one sandbox do not overlap, and none is open."""
    for each in sandbox_ids:
        runs: list[dict[str, Any]] = person.call("GET", f"/usage?sandbox_id={each}")["usage"]
        times = sorted(
            (run["start_time"], run["end_time"])
            for run in runs
            if run["service_type"] == "sandbox_runtime"
        )
        assert all(end for _, end in times), "a run is billed on"
        overlaps = [begin < end for (_, end), (begin, _) in pairwise(times)]
        assert not any(overlaps), f"{each} is billed twice: {times}"
