"""Two servers on one PostgreSQL, one of them killed for good with all that it ran."""

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.platform.test_crash import new_sandbox, supervisors
from tests.support.servers.processes import ServerProcess, run_command, sandyard_serve
from tests.support.servers.sandbox_programs import page_of
from tests.support.servers.users import Person, signed_up, until
from tests.support.storage.engines import create_database

LONGEST_SEC = 8


@dataclass
class Nodes:
    """Servers that share a database, each with a data dir of its own."""

    environment: dict[str, str]
    folder: Path

    def serve(self, name: str) -> AbstractContextManager[ServerProcess]:
        return sandyard_serve(self.folder / name, environment=self.environment)


@pytest.fixture
async def nodes(postgres_url: str, tmp_path: Path) -> Nodes:
    tmp_path.chmod(0o755)
    url = await create_database(postgres_url)
    run_command("db", "upgrade", environment={"DATABASE_URL": url}).check_returncode()
    settings = {
        "DATABASE_URL": url,
        "SANDBOX_VOLUME": "folder",  # so that a file can be put into a workspace from outside
        "DATABASE_POOL_SIZE": "4",
        "PARTS": "platform,previews",
        "QUOTA_SANDBOXES": "1",
        "QUOTA_STORAGE_GB": "8",
        "ENDS_INTERVAL_SEC": "0.5",
        "RECONCILE_INTERVAL_SEC": "1",
        "JOB_LEASE_SEC": "10",
    }
    return Nodes(settings, tmp_path)


def node_of(server: ServerProcess) -> str:
    return (server.data_dir / "node").read_text()


def kill_for_good(server: ServerProcess) -> None:
    """The server and the supervisors of all that it runs, as when its machine is gone."""
    found = supervisors(server.data_dir)
    assert found
    server.kill()
    for process in found:
        with suppress(psutil.NoSuchProcess):  # an agent ends with its supervisor
            process.kill()
            process.wait(10)


def start(person: Person, sandbox_id: str) -> str:
    url: str = person.call("POST", f"/sandboxes/{sandbox_id}/start")["preview_url"]
    assert page_of(person, url).status_code == 200
    return url


def write_file(server: ServerProcess, sandbox_id: str, text: str) -> None:
    """As the program that runs of it there would."""
    held = server.data_dir / "runtime/held/sandbox" / sandbox_id
    [workspace] = held.glob("*/workspace")
    (workspace / "public/mine.txt").write_text(text)


def new_preview(person: Person) -> str:
    """Its project; the preview runs where the person is."""
    project: str = person.call("POST", "/projects", {"name": "site"}, expect=201)["project_id"]
    files = {"files": [{"path": "index.html", "content": "hello"}]}
    person.call("PUT", f"/projects/{project}/files", files)
    person.call("POST", f"/projects/{project}/sync")
    return project


def previews_on(server: ServerProcess) -> list[Path]:
    return list((server.data_dir / "runtime/held").glob("preview/*/*"))


def look(person: Person, sandbox_id: str) -> Any:
    return person.call("GET", f"/sandboxes/{sandbox_id}")


def is_elsewhere(person: Person, path: str, node: str, *, code: str = "SANDBOX_ELSEWHERE") -> None:
    error = person.call("POST", path, expect=503)["error"]
    assert (error["code"], error["details"]) == (code, {"node": node})
    assert node in error["message"]


def ends_at_its_deadline(person: Person, sandbox_id: str, node: str) -> Any:
    """What is shown of it then: no more than it ran, and nothing that goes on."""
    until(lambda: look(person, sandbox_id)["status"] != "running")
    ended = look(person, sandbox_id)
    assert (ended["status"], node in ended["status_reason"]) == ("stopped", True)
    assert ended["started_at"] <= ended["stopped_at"] <= ended["timeout_at"]
    [usage] = person.call("GET", f"/usage?sandbox_id={sandbox_id}")["usage"]
    assert (usage["end_time"], usage["cost"]) == (ended["stopped_at"], ended["cost"])
    return ended


def test_what_a_dead_node_held_ends_costs_no_more_and_is_not_lost(nodes: Nodes) -> None:
    with nodes.serve("other") as other:
        with nodes.serve("one") as one:
            ann = signed_up(one, "ann", mail=1)
            elsewhere = Person(other.url, ann.headers)
            kept, new = new_sandbox(ann, "kept"), new_sandbox(ann, "new")
            lost = new_sandbox(ann, "lost", max_running_seconds=LONGEST_SEC)
            start(ann, kept)
            write_file(one, kept, "kept")
            stopped = ann.call("POST", f"/sandboxes/{kept}/stop")
            is_elsewhere(elsewhere, f"/sandboxes/{kept}/start", node_of(one))
            sync = f"/projects/{new_preview(ann)}/sync"
            is_elsewhere(elsewhere, sync, node_of(one), code="PREVIEW_ELSEWHERE")
            assert (len(previews_on(one)), previews_on(other)) == (1, [])
            start(ann, lost)
            write_file(one, lost, "lost")
            full = elsewhere.call("POST", f"/sandboxes/{new}/start", expect=409)
            assert full["error"]["code"] == "QUOTA_EXCEEDED"
            kill_for_good(one)
        node = node_of(one)
        is_elsewhere(elsewhere, f"/sandboxes/{lost}/stop", node)
        ended = ends_at_its_deadline(elsewhere, lost, node)
        start(elsewhere, new)
        elsewhere.call("POST", f"/sandboxes/{new}/stop")
        for sandbox_id in (kept, lost):
            is_elsewhere(elsewhere, f"/sandboxes/{sandbox_id}/start", node)
        assert (look(elsewhere, kept), look(elsewhere, lost)) == (stopped, ended)
        with nodes.serve("one") as again:
            ann.url = again.url
            until(lambda: look(ann, lost)["snapshot_bytes"])
            assert look(ann, lost)["cost"] == ended["cost"]
            for sandbox_id, text in ((kept, "kept"), (lost, "lost")):
                url = start(ann, sandbox_id)
                assert page_of(ann, url, "/mine.txt").text == text
                ann.call("POST", f"/sandboxes/{sandbox_id}/stop")
