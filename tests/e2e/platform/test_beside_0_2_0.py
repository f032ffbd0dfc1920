"""The Platform and Previews of 0.2.0 and of this release side by side, on one PostgreSQL."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.platform.test_crash import new_sandbox
from tests.support.e2b.double import API_KEY
from tests.support.e2b.double_process import e2b_double_process
from tests.support.servers.processes import ServerProcess, sandyard_serve, verify
from tests.support.servers.releases import release_0_2_0, sandyard
from tests.support.servers.users import PASSWORD, Person, mailed_token, signed_up
from tests.support.storage.engines import create_database

SETTINGS = {
    "PARTS": "platform,previews",
    "DATABASE_POOL_SIZE": "4",
    "ENDS_INTERVAL_SEC": "0.5",
    "RECONCILE_INTERVAL_SEC": "1",
    "PREVIEWS_PER_ACCOUNT": "1000",
    "PREVIEW_PROVIDER": "e2b",
    "E2B_API_KEY": API_KEY,
}


@pytest.fixture
async def shared(tmp_path: Path, postgres_url: str) -> dict[str, str]:
    tmp_path.chmod(0o755)
    return SETTINGS | {"DATABASE_URL": await create_database(postgres_url)}


@contextmanager
def preview_provider(shared: dict[str, str]) -> Iterator[None]:
    """One that both releases ask, as E2B is."""
    with e2b_double_process() as url:
        shared |= {"E2B_API_URL": url, "E2B_SANDBOX_URL": url}
        yield


def expand(folder: Path, shared: dict[str, str]) -> None:
    """What this release needs, added while 0.2.0 serves."""
    plan = sandyard(folder, "db", "upgrade", "--dry-run", environment=shared)
    for part in ("platform:", "previews:"):
        assert "  Servers of the previous release can keep running.\n" in plan.partition(part)[2]
    assert "Stop the servers" not in plan
    sandyard(folder, "db", "upgrade", environment=shared)


class Pair:
    """One account, called at two servers: what is done `here` is seen and gone on with `there`."""

    def __init__(self, here: Person, there: Person, name: str) -> None:
        self.here, self.there, self.name = here, there, name

    def use_project(self) -> str:
        made = self.here.call("POST", "/projects", {"name": self.name}, expect=201)
        path = f"/projects/{made['project_id']}"
        assert self.there.call("GET", path)["name"] == self.name
        self.there.call("PATCH", path, {"description": "changed there"})
        assert self.here.call("GET", path)["description"] == "changed there"
        return str(made["project_id"])

    def use_key(self) -> None:
        made = self.here.call("POST", "/api-keys", {"name": self.name}, expect=201)
        key = {"X-API-Key": made["api_key"]}
        assert Person(self.there.url, key).call("GET", "/me")["account_id"]
        self.there.call("POST", f"/api-keys/{made['key_id']}/deactivate")
        Person(self.here.url, key).call("GET", "/me", expect=401)
        self.there.call("DELETE", f"/api-keys/{made['key_id']}", expect=204)

    def use_sandbox(self) -> str:
        """Made here and run there; its path."""
        sandbox_id = new_sandbox(self.here, self.name)
        path = f"/sandboxes/{sandbox_id}"
        assert self.there.call("POST", f"{path}/start")["status"] == "running"
        assert self.here.call("GET", path)["status"] == "running"
        stopped = self.there.call("POST", f"{path}/stop")
        assert self.here.call("GET", path)["status"] == "stopped"
        [usage] = self.here.call("GET", f"/usage?sandbox_id={sandbox_id}")["usage"]
        assert usage["end_time"] == stopped["stopped_at"]
        [usage] = self.there.call("GET", f"/usage?sandbox_id={sandbox_id}")["usage"]
        assert usage["cost"] == stopped["cost"]  # 0.2.0 counts whole seconds
        self.here.call("PATCH", path, {"name": f"{self.name} again"})
        assert self.there.call("GET", path)["name"] == f"{self.name} again"
        return path

    def live(self) -> None:
        """All of it, and what was made here is given up there."""
        project_id = self.use_project()
        self.use_key()
        sandbox = self.use_sandbox()
        self.use_preview(project_id)
        self.there.call("DELETE", sandbox)
        assert self.here.call("GET", sandbox)["status"] == "recycled"
        self.there.call("DELETE", f"/projects/{project_id}", expect=204)
        self.here.call("GET", f"/projects/{project_id}", expect=404)

    def use_preview(self, project_id: str) -> None:
        path = f"/projects/{project_id}"
        self.put_file(self.here, path, "made here", version=1)
        assert self.contents(self.there, path) == ["made here"]
        made = self.here.call("POST", f"{path}/sync")["data"]["sandbox_info"]
        for person in (self.here, self.there):
            status = person.call("GET", f"{path}/sandbox/status")
            assert (status["status"], sandbox_of(status)) == ("running", made["sandbox_id"])
        self.put_file(self.there, path, "changed there", version=2)
        assert self.contents(self.here, path) == ["changed there"]
        again = self.there.call("POST", f"{path}/sync")["data"]
        assert (again["sandbox_info"]["sandbox_id"], again["version"]) == (made["sandbox_id"], 2)

    def put_file(self, person: Person, path: str, content: str, *, version: int) -> None:
        body = {"files": [{"path": "index.html", "content": content}]}
        assert person.call("PUT", f"{path}/files", body)["version"] == version

    def contents(self, person: Person, path: str) -> list[str]:
        return [each["content"] for each in person.call("GET", f"{path}/files")["files"]]


class Load:
    """Threads that live as one account, each life at two servers of those that are in turn."""

    def __init__(self, ann: Person, *servers: ServerProcess) -> None:
        self.servers = list(servers)
        self._ann = ann
        self._is_over = threading.Event()
        self._lives = [0] * 3
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(len(self._lives))
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        chance = random.Random(number)
        while not self._is_over.is_set():
            here, there = (
                Person(chance.choice(self.servers).url, self._ann.headers) for _ in range(2)
            )
            try:
                Pair(here, there, f"life-{number}-{self._lives[number]}").live()
            except BaseException as error:
                self._errors.append(error)
                return
            self._lives[number] += 1

    def go_on(self, lives: int = 2) -> None:
        """Until each thread has lived so many more times, which began after this."""
        wanted = [each + lives + 1 for each in self._lives]
        while any(each < most for each, most in zip(self._lives, wanted, strict=True)):
            time.sleep(0.05)
            self._raise()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self._raise()

    def _raise(self) -> None:
        for error in self._errors:
            raise error


def sandbox_of(status: Any) -> str:
    return str(status["sandbox_info"]["sandbox_id"])


def sign_up(here: ServerProcess, there: ServerProcess, username: str, *, mail: int) -> None:
    """The mail of one is good at the other, and so are the login and the new password."""
    person = Person(here.url)
    body = {"email": f"{username}@example.com", "username": username, "password": PASSWORD}
    person.call("POST", "/auth/signup", body, expect=202)
    token = mailed_token(here, number=mail)
    person = Person(there.url)
    person.call("POST", "/auth/verify", {"token": token}, expect=201)
    person.log_in(username, PASSWORD)
    body = {"current_password": PASSWORD, "new_password": f"another {PASSWORD}"}
    Person(here.url, person.headers).call("POST", "/auth/password/change", body)
    person.call("GET", "/me", expect=401)
    person.headers = {}
    person.log_in(username, f"another {PASSWORD}")


def test_what_one_release_makes_the_other_uses(tmp_path: Path, shared: dict[str, str]) -> None:
    release = release_0_2_0()
    with preview_provider(shared):
        sandyard(tmp_path, "db", "upgrade", environment=shared | release)
        with sandyard_serve(tmp_path / "old", environment=shared | release) as old:
            ann = signed_up(old, "ann", mail=1)
            expand(tmp_path, shared)
            assert httpx.get(old.url + "/readyz", timeout=60).status_code == 200
        with (
            sandyard_serve(tmp_path / "old", environment=shared | release) as old,
            sandyard_serve(tmp_path / "new", environment=shared) as new,
        ):
            for here, there, mail in ((old, new, 2), (new, old, 1)):
                at = f"at-{here.data_dir.name}"
                sign_up(here, there, at, mail=mail)
                pair = Pair(Person(here.url, ann.headers), Person(there.url, ann.headers), at)
                pair.live()
                pair.name = f"{at}-kept"
                pair.use_preview(pair.use_project())
        code, said = verify(tmp_path, shared)
        assert code == 0, said


@pytest.mark.torture
@pytest.mark.timeout(400)
def test_0_2_0_is_replaced_under_load(tmp_path: Path, shared: dict[str, str]) -> None:
    release = release_0_2_0()
    with preview_provider(shared):
        sandyard(tmp_path, "db", "upgrade", environment=shared | release)
        with sandyard_serve(tmp_path / "old", environment=shared | release) as old:
            load = Load(signed_up(old, "ann", mail=1), old)
            try:
                load.go_on()
                expand(tmp_path, shared)
                load.go_on()
                with sandyard_serve(tmp_path / "new", environment=shared) as new:
                    load.servers.append(new)
                    load.go_on(5)
                    load.servers.remove(old)
                    load.go_on()
                    assert old.stop() == 0
                    load.go_on()
                    load.stop()
                    code, said = verify(tmp_path, shared)
                    assert code == 0, said
            finally:
                load.stop()
