"""Previews that install packages, with many callers at once and with `kill -9` in each phase."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.servers.processes import ServerProcess, sandyard_serve, verify
from tests.support.servers.sandbox_programs import page_of
from tests.support.servers.users import Person, signed_up, until

ENVIRONMENT = {"PARTS": "platform,previews", "PREVIEW_NETWORK": "none", "PREVIEW_ATTEMPT_SEC": "20"}
INSTALL = "cat /proc/sys/kernel/random/uuid >>installs.txt; sleep 3"
FILES = {
    "package.json": json.dumps({"scripts": {"preinstall": INSTALL}}),
    "Procfile": "web: sleep 2; exec python3 -m http.server --bind 127.0.0.1 $PORT\n",
    "index.html": "<h1>one</h1>",
}
CALLERS = 30


@contextmanager
def serving(data: Path) -> Iterator[ServerProcess]:
    with sandyard_serve(data, environment=ENVIRONMENT) as server:
        yield server


def put(ann: Person, project: str, files: dict[str, str]) -> None:
    body = {"files": [{"path": path, "content": text} for path, text in files.items()]}
    ann.call("PUT", f"/projects/{project}/files", body)


def new_project(ann: Person) -> str:
    project = str(ann.call("POST", "/projects", {"name": "app"}, expect=201)["project_id"])
    put(ann, project, FILES)
    return project


def sync(ann: Person, project: str) -> httpx.Response:
    url = f"{ann.url}/api/v1/projects/{project}/sync"
    return httpx.post(url, headers=ann.headers, timeout=120)


def application(ann: Person, project: str) -> Any:
    return ann.call("GET", f"/projects/{project}/sandbox/status")["application"]


def until_phase(ann: Person, project: str, *phases: str) -> None:
    until(lambda: (application(ann, project) or {}).get("phase") in phases)


def runs_of(data: Path, project: str) -> list[Path]:
    """The runs that were begun for the project, on this machine's disk."""
    return list((data / "runtime" / "held" / "preview").glob(f"{project}/*"))


def installs(ann: Person, project: str) -> list[str]:
    until_phase(ann, project, "running")
    url = ann.call("GET", f"/projects/{project}/sandbox/status")["sandbox_info"]["preview_url"]
    listed = page_of(ann, url, "/installs.txt")
    assert listed.status_code == 200
    return listed.text.split()


def test_many_syncs_at_once_make_one_sandbox_and_one_install(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as server:
        ann = signed_up(server, "ann", mail=1)
        project = new_project(ann)
        with ThreadPoolExecutor(CALLERS) as callers:
            answers = list(callers.map(lambda _: sync(ann, project), range(CALLERS)))
            assert {answer.status_code for answer in answers} == {200}
            again = list(callers.map(lambda _: sync(ann, project), range(CALLERS)))
        synced = [answer.json()["data"] for answer in answers]
        assert len({each["sandbox_info"]["sandbox_id"] for each in synced}) == 1
        assert "created" in {each["outcome"] for each in synced}
        assert {answer.json()["data"]["outcome"] for answer in again} == {"unchanged"}
        assert len(installs(ann, project)) == 1
        assert len(runs_of(data, project)) == 1
        ann.call("DELETE", f"/projects/{project}/sandbox")


@pytest.mark.parametrize(
    "phase",
    [
        "creating",
        "installing",
        pytest.param("starting", marks=pytest.mark.torture),
        pytest.param("running", marks=pytest.mark.torture),
        pytest.param("failed", marks=pytest.mark.torture),
    ],
)
def test_a_server_killed_in_each_phase_makes_no_second_and_loses_no_version(
    tmp_path: Path, phase: str
) -> None:
    data = tmp_path / "data"
    with serving(data) as server:
        ann = signed_up(server, "ann", mail=1)
        project = new_project(ann)
        if phase == "failed":
            put(ann, project, {"Procfile": "web: exit 3\n"})
        syncing = threading.Thread(target=_sync_until_killed, args=(ann, project))
        syncing.start()
        until(lambda: runs_of(data, project))
        if phase != "creating":
            syncing.join()
            until_phase(ann, project, phase)
        before = ann.call("GET", f"/projects/{project}/versions")
        server.kill()
        syncing.join()
    made = set(runs_of(data, project))
    with serving(data) as server:
        ann.url = server.url
        assert ann.call("GET", f"/projects/{project}/versions") == before
        put(ann, project, FILES | {"index.html": "<h1>two</h1>"})
        synced = until(lambda: _answered(sync(ann, project)), within_sec=120)
        assert synced["version"] == before["versions"][0]["version"] + 1
        until_phase(ann, project, "running")
        assert page_of(ann, synced["sandbox_info"]["preview_url"]).text == "<h1>two</h1>"
        if phase != "creating":
            assert synced["outcome"] != "created"
            assert set(runs_of(data, project)) == made
            assert len(installs(ann, project)) == 1
        else:  # what it had begun was adopted, or ended before another was made
            until(lambda: len(runs_of(data, project)) == 1)
        ann.call("DELETE", f"/projects/{project}/sandbox")
        code, output = verify(data, ENVIRONMENT)
        assert code == 0, output


def _sync_until_killed(ann: Person, project: str) -> None:
    with suppress(httpx.TransportError):
        sync(ann, project)


def _answered(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 503), answer.text
    return answer.json()["data"] if answer.status_code == 200 else None
