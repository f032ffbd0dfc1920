"""`sandyard verify`: all parts are sound after `kill -9`, and each changed row is named."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from sandyard.kit.sql.database import Database, PostgresDatabase, SqliteDatabase
from tests.e2e.telemetry.api import Api, random_mac
from tests.support.servers.processes import (
    ServerProcess,
    csp_simulator,
    run_command,
    sandyard_serve,
    verify,
)
from tests.support.servers.users import Person, signed_up
from tests.support.storage.engines import create_database

CALLS_BEFORE_KILL = 12


@dataclass(frozen=True, slots=True)
class Engine:
    environment: dict[str, str]
    data_dir: Path

    def open(self, part: str) -> Database:
        url = self.environment.get("DATABASE_URL")
        if url is None:
            return SqliteDatabase(self.data_dir / f"{part}.db", schema=part)
        return PostgresDatabase(sa.make_url(url), pool_size=1)

    async def execute(self, part: str, statement: str) -> list[str]:
        """The first column of what the statement returns."""
        database = self.open(part)
        try:
            return await database.write(
                lambda connection: [str(row[0]) for row in connection.execute(sa.text(statement))]
            )
        finally:
            await database.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.torture)])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str
) -> AsyncIterator[Engine]:
    environment = {}
    if request.param == "postgresql":
        environment["DATABASE_URL"] = await create_database(postgres_url)
        run_command("db", "upgrade", environment=environment).check_returncode()
    with csp_simulator(tmp_path, "--count", "1000") as provider:
        yield Engine(environment | {"CSP_BASE_URL": provider}, tmp_path / "data")


def allocate(server: ServerProcess) -> Callable[[int], None]:
    """Every second sandbox is given up again."""

    def call(number: int) -> None:
        headers = server.track | {"X-Track-ID": f"track-{number}"}
        lease = httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=30).json()
        if number % 2:
            path = f"/v1/sandboxes/{lease['sandbox_id']}/mark-for-deletion"
            httpx.post(server.url + path, headers=headers, timeout=30).raise_for_status()

    return call


def register(api: Api) -> Callable[[int], None]:
    def call(number: int) -> None:
        api.register(hardware_id=random_mac()).raise_for_status()
        api.register(firmware_version=f"1.0.{number}").raise_for_status()

    return call


def write_project(person: Person) -> Callable[[int], None]:
    def call(number: int) -> None:
        made = person.call("POST", "/projects", {"name": f"p{number}"}, expect=201)
        path = f"/projects/{made['project_id']}"
        person.call("PUT", f"{path}/files", {"files": [{"path": "a.txt", "content": "a"}]})
        person.call("PATCH", path, {"name": f"q{number}"})
        if number % 5 == 0:
            person.call("DELETE", path, expect=204)

    return call


@contextmanager
def traffic(*calls: Callable[[int], None]) -> Iterator[threading.Event]:
    """Each call again and again until the server is gone; the event is that there were enough."""
    enough, made = threading.Event(), [0] * len(calls)

    def caller(index: int) -> None:
        try:
            with suppress(httpx.TransportError):
                while True:
                    calls[index](made[index])
                    made[index] += 1
                    if min(made) >= CALLS_BEFORE_KILL:
                        enough.set()
        finally:
            enough.set()

    with ThreadPoolExecutor() as pool:
        callers = [pool.submit(caller, index) for index in range(len(calls))]
        yield enough
        for each in callers:
            each.result(60)


def fill_and_kill(engine: Engine) -> None:
    settings = {"PROJECTS_PER_ACCOUNT": "1000", "WRITES_PER_ACCOUNT": "100000/minute"}
    with sandyard_serve(engine.data_dir, environment=engine.environment | settings) as server:
        httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=30)
        ann, api = signed_up(server, "ann", mail=1), Api(server)
        with traffic(allocate(server), register(api), write_project(ann)) as enough:
            was_enough = enough.wait(60)
            server.kill()
            assert was_enough


DAMAGES = {
    "broker": ("sandboxes", "sandbox_id", "name = 'changed'"),
    "telemetry": ("devices", "hardware_id", "firmware_version = '9'"),
    "platform": ("projects", "project_id", "name = 'changed'"),
    "previews": ("previews", "project_id", "sequence = sequence + 1"),
}
"""Of each part, the table, its key and what is changed in one row by hand."""


async def test_every_part_is_sound_after_a_kill_and_each_changed_row_is_named(
    engine: Engine,
) -> None:
    fill_and_kill(engine)
    code, output = verify(engine.data_dir, engine.environment)
    assert code == 0, output
    assert output.count(": no problems\n") == len(DAMAGES) == output.count("\n")
    changed = []
    for part, (table, key, change) in DAMAGES.items():
        one = f"{key} = (SELECT min({key}) FROM {part}.{table})"  # noqa: S608 - our own words
        update = f"UPDATE {part}.{table} SET {change} WHERE {one} RETURNING {key}"  # noqa: S608
        changed += await engine.execute(part, update)
    [deleted] = await engine.execute("telemetry", "DELETE FROM telemetry.api_keys RETURNING key_id")
    code, output = verify(engine.data_dir, engine.environment)
    assert code == 1
    lines = [line.split() for line in output.splitlines() if line.startswith("  ")]
    assert sorted(line[0] for line in lines) == sorted([*changed, deleted])
    assert f"  {deleted} is not what its events lead to: it is not there\n" in output
    assert output.count(": 1 problem\n") == 3
    assert output.count(": 2 problems\n") == 1
