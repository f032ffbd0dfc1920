"""An operator grows from SQLite to PostgreSQL to DynamoDB, and goes back, while a class works."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from sandyard.kit.free_ports import free_port
from tests.e2e.telemetry.api import Api
from tests.support.servers.processes import (
    SECRETS,
    ServerProcess,
    csp_simulator,
    run_command,
    sandyard_serve,
    verify,
    wait_for_pool,
)
from tests.support.servers.users import PASSWORD, Person, signed_up, until
from tests.support.storage.engines import AWS_ENVIRONMENT, create_database

TRACK = {"Authorization": f"Bearer {SECRETS['BROKER_API_TOKEN']}"}
ADMIN = {"Authorization": f"Bearer {SECRETS['BROKER_ADMIN_TOKEN']}"}


class Class:
    """Learners who claim a sandbox each, and claim it again and again: each keeps the one it
    has."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.leases: dict[str, tuple[str, int]] = {}
        """The sandbox and the end of each."""
        self.problems: list[str] = []
        self.refusals: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        with httpx.Client(timeout=20) as client:
            number = 0
            while not self._ended.wait(0.05):
                number += 1
                learner = f"learner-{number % (20 if number > 100 else 6)}"
                with suppress(httpx.TransportError):
                    self._claim(client, learner)

    def _claim(self, client: httpx.Client, learner: str) -> None:
        headers = TRACK | {"X-Track-ID": learner}
        answer = client.post(f"{self.url}/v1/allocate", headers=headers)
        if answer.status_code == 503:
            self.refusals.add(answer.json()["error"]["code"])
            if "Retry-After" not in answer.headers:
                self.problems.append("no Retry-After")
        elif answer.is_success:
            lease = answer.json()["sandbox_id"], answer.json()["expires_at"]
            if self.leases.setdefault(learner, lease) != lease:
                self.problems.append(f"{learner} had {self.leases[learner]}, now has {lease}")
        elif self.leases:  # before, the first sync has not filled the pool yet
            self.problems.append(answer.text)

    def claims(self) -> int:
        return len(self.leases)

    @contextmanager
    def working(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()


class Course:
    """A named client, with a lease and with sandboxes reserved for later."""

    def __init__(self, url: str) -> None:
        self._url = url
        course = {"name": "dns", "scopes": ["allocate"], "track_prefix": "dns-", "max_leases": 1}
        self._token = self._operate("POST", "clients", course)["token"]
        later = int(time.time()) + 3600
        reserved = {"count": 2, "from": later, "to": later + 3600, "track_prefix": "dns-"}
        self._operate("POST", "reservations", reserved)
        self._before = self._contents()

    def check(self) -> None:
        """All of it is as it was."""
        assert self._contents() == self._before

    def _contents(self) -> tuple[object, ...]:
        headers = {"Authorization": f"Bearer {self._token}", "X-Track-ID": "dns-ann"}
        lease = httpx.post(f"{self._url}/v1/allocate", headers=headers, timeout=60)
        held = self._operate("GET", "reservations")["reservations"]
        return lease.raise_for_status().json(), [(each["from"], each["count"]) for each in held]

    def _operate(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        url = f"{self._url}/v1/admin/{path}"
        answer = httpx.request(method, url, json=body, headers=ADMIN, timeout=60)
        made: dict[str, Any] = answer.raise_for_status().json()
        return made


class Operator:
    def __init__(self, folder: Path, provider: str, database_url: str, dynamo_url: str) -> None:
        self.data_dir = folder / "data"
        self.port = free_port()
        table = f"Pool{uuid4().hex[:8]}"
        self.sqlite = {"CSP_BASE_URL": provider}
        self.postgresql = self.sqlite | {"DATABASE_URL": database_url}
        self.dynamodb = self.postgresql | {
            **AWS_ENVIRONMENT,
            "POOL_STORE": "dynamodb",
            "TELEMETRY_STORE": "dynamodb",
            "DDB_ENDPOINT_URL": dynamo_url,
            "DDB_TABLE_NAME": table,
            "TELEMETRY_TABLE_PREFIX": f"{table}_",
        }

    @contextmanager
    def serving(
        self, environment: dict[str, str], *, port: int | None = None
    ) -> Iterator[ServerProcess]:
        with sandyard_serve(
            self.data_dir, environment=environment, port=port or self.port
        ) as server:
            yield server

    def run(self, *arguments: str, **environment: str) -> str:
        done = run_command(*arguments, environment=SECRETS | environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def move(self, source: str, target: str, *options: str) -> str:
        place = ("--data-dir", str(self.data_dir))
        return self.run("move", "--from", source, "--to", target, *options, *place, **self.dynamodb)


@pytest.mark.timeout(900)
async def test_growing_up_and_back_while_a_class_works(
    tmp_path: Path, postgres_url: str, dynamo_url: str
) -> None:
    database_url = await create_database(postgres_url)
    with csp_simulator(tmp_path, "--count", "40") as provider:
        operator = Operator(tmp_path, provider, database_url, dynamo_url)
        learners = Class(f"http://127.0.0.1:{operator.port}")
        with learners.working():
            _grow(operator, learners)
        assert learners.problems == []
        assert learners.refusals >= {"STORE_MOVING"}
        taken = [sandbox_id for sandbox_id, _ in learners.leases.values()]
        assert len(taken) == len(set(taken)) == 20


def _grow(operator: Operator, learners: Class) -> None:
    with operator.serving(operator.sqlite) as server:
        wait_for_pool(server)
        device = Api(server)
        reading = device.reading()
        device.send(reading).raise_for_status()
        person = signed_up(server, "ada", mail=1)
        project = person.call("POST", "/projects", {"name": "lab"}, expect=201)["project_id"]
        page = {"path": "index.html", "content": "<p>hello"}
        person.call("PUT", f"/projects/{project}/files", {"files": [page]})
        person.call("POST", "/api-keys", {"name": "laptop"}, expect=201)
        until(lambda: learners.claims() >= 6)
        course = Course(server.url)

    said = operator.move("sqlite", "postgresql")
    assert "broker: open on postgresql" in said
    assert "previews: open on postgresql" in said
    with operator.serving(operator.postgresql):
        _check(device, reading, person)
        course.check()
        operator.run("tables", "create", **operator.dynamodb)
        said = operator.move("postgresql", "dynamodb")
        assert "platform, previews: not moved" in said
        until(lambda: "STORE_MOVING" in learners.refusals)
        ready = httpx.get(f"{learners.url}/readyz", timeout=60)
        assert ready.status_code == 503
        assert "was moved to dynamodb" in ready.text

    with operator.serving(operator.dynamodb):
        _check(device, reading, person)
        course.check()
        until(lambda: learners.claims() == 20)
        code, text = verify(operator.data_dir, operator.dynamodb)
        assert code == 0, text

    operator.move("dynamodb", "sqlite", "--replace")
    said = operator.move(
        "postgresql", "sqlite", "--replace", "--part", "platform", "--part", "previews"
    )
    assert "platform: open on sqlite" in said
    with operator.serving(operator.sqlite):
        _check(device, reading, person)
        course.check()
        time.sleep(2)
    device.client.close()
    code, text = verify(operator.data_dir, operator.sqlite)
    assert code == 0, text


def _check(device: Api, reading: object, person: Person) -> None:
    """What callers had before is there: keys, devices, duplicates, accounts, passwords."""
    answer = device.send(reading).raise_for_status().json()
    assert answer["acknowledged_batch_ids"] == []
    assert len(answer["duplicate_batch_ids"]) == 1
    device.send(device.reading()).raise_for_status()
    person.log_in("ada", PASSWORD)
    projects = person.call("GET", "/projects")["projects"]
    [project] = [each["project_id"] for each in projects if each["name"] == "lab"]
    [file] = person.call("GET", f"/projects/{project}/files")["files"]
    assert file["content"] == "<p>hello"
    assert len(person.call("GET", "/api-keys")["api_keys"]) == 1


async def test_a_server_on_an_empty_engine_names_the_command_to_move_the_data(
    tmp_path: Path, postgres_url: str
) -> None:
    """Not a sandbox that somebody has is handed out because a setting was changed."""
    database_url = await create_database(postgres_url)
    with csp_simulator(tmp_path, "--count", "5") as provider:
        operator = Operator(tmp_path, provider, database_url, "http://127.0.0.1:1")
        with operator.serving(operator.sqlite) as server:
            wait_for_pool(server)
        operator.run("db", "upgrade", **operator.postgresql)
        serve = ["serve", "--port", str(free_port()), "--data-dir", str(operator.data_dir)]
        refused = run_command(*serve, environment=SECRETS | operator.postgresql)
        assert refused.returncode == 1
        assert "broker has no data on postgresql, and still has some on sqlite" in refused.stderr
        line = f"sandyard move --from sqlite --to postgresql --data-dir {operator.data_dir}"
        assert line in refused.stderr
        with sandyard_serve(
            operator.data_dir, environment=operator.postgresql, arguments=("--start-empty",)
        ) as server:
            wait_for_pool(server)
        with operator.serving(operator.postgresql):
            pass
