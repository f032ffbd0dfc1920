"""`sandyard backup` under load and `sandyard restore` elsewhere: what was answered before holds."""

import itertools
import shlex
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.telemetry.api import Api
from tests.support.servers.processes import ServerProcess, run_sandyard, sandyard_serve
from tests.support.servers.sandbox_programs import page_of
from tests.support.servers.users import PASSWORD, Person, signed_up, until

# The pepper and the signing key are those of the data dir: without them nothing would open.
ENVIRONMENT = {"API_KEY_PEPPER": "", "JWT_SECRET": "", "QUOTA_SANDBOXES": "5"}


@dataclass
class Load:
    """Callers of every part, and what they were answered."""

    server: ServerProcess
    device: Api
    ann: Person
    project: str
    leases: dict[str, str] = field(default_factory=dict)
    readings: list[dict[str, Any]] = field(default_factory=list)
    version: int = 1
    failures: list[str] = field(default_factory=list)

    def lease(self, number: int) -> None:
        track = f"track-{number}"
        answer = ask_lease(self.server, track)
        if answer.status_code == 201:
            self.leases[track] = answer.json()["sandbox_id"]
        elif answer.status_code != 409:
            self.failures.append(answer.text)

    def send(self, _number: int) -> None:
        reading = self.device.reading()
        answer = self.device.send(reading)
        if answer.json().get("acknowledged_batch_ids") == [reading["batch_id"]]:
            self.readings.append(reading)
        else:
            self.failures.append(answer.text)

    def save(self, number: int) -> None:
        body = {"files": [{"path": "index.html", "content": f"page {number}"}]}
        path = f"/projects/{self.project}/files"
        self.version = self.ann.call("PUT", path, body)["version"]

    @contextmanager
    def running(self) -> Iterator[None]:
        stop = threading.Event()

        def repeat(call: Callable[[int], None]) -> None:
            for number in itertools.count(1):
                if stop.wait(0.01):
                    return
                try:
                    call(number)
                except Exception as error:
                    self.failures.append(repr(error))
                    return

        threads = [
            threading.Thread(target=repeat, args=(call,))
            for call in (self.lease, self.send, self.save)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def until_busy(self) -> None:
        while not (len(self.leases) > 5 and len(self.readings) > 20 and self.version > 5):
            assert self.failures == []
            threading.Event().wait(0.01)


def ask_lease(server: ServerProcess, track: str) -> httpx.Response:
    headers = server.track | {"X-Track-ID": track}
    return httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=20)


def run(*arguments: str, folder: Path) -> str:
    process = run_sandyard(*arguments, environment=ENVIRONMENT, log=folder / "command.log")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, (folder / "command.log").read_text()
    return output.decode()


def new_sandbox(ann: Person, name: str) -> dict[str, Any]:
    """A visitors' book that runs."""
    [template] = [
        each
        for each in ann.call("GET", "/templates?visibility=official")["templates"]
        if each["repository_url"] == "builtin:python-web"
    ]
    body = {
        "name": name,
        "template_id": template["template_id"],
        "cpu_spec": 1,
        "memory_spec": 0.5,
    }
    sandbox = ann.call("POST", "/sandboxes", body, expect=201)
    started: dict[str, Any] = ann.call("POST", f"/sandboxes/{sandbox['sandbox_id']}/start")
    return started


def logs(person: Person, path: str) -> str:
    return httpx.get(f"{person.url}/api/v1{path}/logs", headers=person.headers, timeout=60).text


def sign_book(person: Person, url: str, name: str) -> None:
    signed = page_of(person, url, method="POST", data={"name": name})
    assert signed.status_code == 303


def test_every_part_is_backed_up_under_load_and_served_elsewhere(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "backup", tmp_path / "other machine" / "data"
    with sandyard_serve(tmp_path / "data", environment=ENVIRONMENT) as server:
        httpx.post(
            f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60
        ).raise_for_status()
        ann = signed_up(server, "ann", mail=1)
        key = ann.call("POST", "/api-keys", {"name": "laptop"}, expect=201)["api_key"]
        project = ann.call("POST", "/projects", {"name": "site"}, expect=201)["project_id"]
        stopped, lasting = new_sandbox(ann, "stopped"), new_sandbox(ann, "lasting")
        sign_book(ann, stopped["preview_url"], "kilroy was here")
        ann.call("POST", f"/sandboxes/{stopped['sandbox_id']}/stop")
        body = {"files": [{"path": "index.html", "content": "page 0"}]}
        ann.call("PUT", f"/projects/{project}/files", body)
        synced = ann.call("POST", f"/projects/{project}/sync")
        preview_url = synced["data"]["sandbox_info"]["preview_url"]
        load = Load(server, Api(server), ann, project)
        with load.running():
            load.until_busy()
            leases, readings = dict(load.leases), list(load.readings)
            version = load.version
            told = run("backup", str(file), "--data-dir", str(server.data_dir), folder=tmp_path)
            answered = len(load.readings)
            while len(load.readings) == answered:  # it goes on as before
                assert load.failures == []
        assert load.failures == []
        assert "secrets: included" in told
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        told = run("restore", str(file), "--data-dir", str(elsewhere), folder=tmp_path)
        assert (elsewhere / "node").read_text() in told
        assert told.endswith(f"next: sandyard serve --data-dir {shlex.quote(str(elsewhere))}\n")

        with sandyard_serve(elsewhere, environment=ENVIRONMENT) as other:
            for track, sandbox_id in leases.items():
                answer = ask_lease(other, track)
                assert (answer.status_code, answer.json()["sandbox_id"]) == (200, sandbox_id)
            load.device.client.base_url = httpx.URL(f"{other.url}/telemetry/v1")
            again = load.device.send(*readings).json()
            assert again["duplicate_batch_ids"] == [each["batch_id"] for each in readings]
            ann.url = other.url
            files = ann.call("GET", f"/projects/{project}/files")
            assert files["version"] >= version
            ann.log_in("ann", PASSWORD)
            ann.headers = {"X-API-Key": key}
            started = ann.call("POST", f"/sandboxes/{stopped['sandbox_id']}/start")
            assert "kilroy was here" in page_of(ann, started["preview_url"]).text
            ann.call("POST", f"/sandboxes/{stopped['sandbox_id']}/stop")
            # What runs there is known here, and left alone.
            path = f"/sandboxes/{lasting['sandbox_id']}"
            assert ann.call("GET", path)["status"] == "running"
            cost = ann.call("GET", "/billing/month-to-date")["total"]
            for call in (f"{path}/stop", f"/projects/{project}/sync"):
                error = ann.call("POST", call, expect=503)["error"]
                assert error["code"] in {"SANDBOX_ELSEWHERE", "PREVIEW_ELSEWHERE"}
                assert (server.data_dir / "node").read_text() in error["message"]
            threading.Event().wait(2)
            assert ann.call("GET", "/billing/month-to-date")["total"] == cost, "no bill grows"
        ann.url = server.url
        for url in (lasting["preview_url"], preview_url):
            assert page_of(ann, url).status_code == 200
        assert ann.call("GET", path)["status"] == "running"
        ann.call("POST", f"{path}/stop")
        load.device.client.close()


def test_the_same_node_closes_what_ran_on_its_lost_machine(tmp_path: Path) -> None:
    """At its last sign of life, with its logs, and not at the time of the restore."""
    file, elsewhere = tmp_path / "backup", tmp_path / "elsewhere"
    environment = ENVIRONMENT | {"PARTS": "platform"}
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        ann = signed_up(server, "ann", mail=1)
        sandbox = new_sandbox(ann, "lost")
        path = f"/sandboxes/{sandbox['sandbox_id']}"
        page_of(ann, sandbox["preview_url"], "/signed-by-nobody")
        until(lambda: "GET /signed-by-nobody" in logs(ann, path))
        run("backup", str(file), "--data-dir", str(server.data_dir), folder=tmp_path)
        backed_up_at = datetime.now(UTC)
        ann.call("POST", f"{path}/stop")
    shutil.rmtree(server.data_dir)
    run("restore", str(file), "--data-dir", str(elsewhere), "--same-node", folder=tmp_path)
    with sandyard_serve(elsewhere, environment=environment) as other:
        ann.url = other.url
        until(lambda: ann.call("GET", path)["status"] == "stopped")
        [usage] = ann.call("GET", "/usage")["usage"]
        assert datetime.fromisoformat(usage["end_time"]) <= backed_up_at
        assert "GET /signed-by-nobody" in logs(ann, path)
