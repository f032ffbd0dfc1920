"""Secrets that are rotated while servers use them, in Secrets Manager (by `moto`) and in files."""

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import boto3
import httpx
import pytest
import sqlalchemy as sa
from moto.server import ThreadedMotoServer

from tests.support.servers.processes import ServerProcess, run_sandyard, sandyard_serve
from tests.support.storage.engines import AWS_ENVIRONMENT, create_database

REGION = {"AWS_DEFAULT_REGION": "eu-central-1"}
SECRET = "lab/tokens"
CALLERS = 8


@dataclass
class SecretsManager:
    server: ThreadedMotoServer

    @property
    def environment(self) -> dict[str, str]:
        host, port = self.server.get_host_and_port()
        return AWS_ENVIRONMENT | REGION | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}

    def put(self, **tokens: str) -> None:
        environment = self.environment
        client: Any = boto3.client(
            "secretsmanager",
            endpoint_url=environment["AWS_ENDPOINT_URL"],
            region_name=REGION["AWS_DEFAULT_REGION"],
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        text = json.dumps(tokens)
        try:
            client.put_secret_value(SecretId=SECRET, SecretString=text)
        except client.exceptions.ResourceNotFoundException:
            client.create_secret(Name=SECRET, SecretString=text)


@pytest.fixture
def secrets_manager() -> Iterator[SecretsManager]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    httpx.post(f"http://{host}:{port}/moto-api/reset", timeout=60)
    try:
        yield SecretsManager(server)
    finally:
        server.stop()


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def status(server: ServerProcess, token: str, path: str = "/v1/admin/stats") -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(server.url + path, headers=headers, timeout=30).status_code


async def call_until(server: ServerProcess, tokens: list[str], done: asyncio.Event) -> Counter[int]:
    """Callers that use the newest of the tokens, as who reads it from Secrets Manager does."""
    seen: Counter[int] = Counter()

    async def call(http: httpx.AsyncClient) -> None:
        while not done.is_set():
            headers = {"Authorization": f"Bearer {tokens[-1]}"}
            seen[(await http.get("/v1/admin/stats", headers=headers)).status_code] += 1

    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        await asyncio.gather(*(call(http) for _ in range(CALLERS)))
    return seen


async def test_no_call_is_refused_while_a_secret_is_rotated_and_its_place_fails(
    tmp_path: Path, secrets_manager: SecretsManager
) -> None:
    secrets_manager.put(admin="admin-token-no-0", track="track-token-no-0")
    environment = secrets_manager.environment | {
        "PARTS": "broker",
        "BROKER_ADMIN_TOKEN": f"aws-secretsmanager:{SECRET}#admin",
        "BROKER_API_TOKEN": f"aws-secretsmanager:{SECRET}#track",
        "SECRETS_REFRESH_SEC": "3600",  # only calls make it look
    }
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        tokens, done = ["admin-token-no-0"], asyncio.Event()
        calls = asyncio.create_task(call_until(server, tokens, done))
        for number in range(1, 4):
            token = f"admin-token-no-{number}"
            await asyncio.to_thread(secrets_manager.put, admin=token, track="track-token-no-0")
            tokens.append(token)
            assert await asyncio.to_thread(status, server, token) == 200
        done.set()
        seen = await calls
        assert set(seen) == {200}, server.log.read_text()[-3000:]
        assert seen[200] > CALLERS
        assert [status(server, token) for token in tokens] == [200] * 4, "the old ones hold too"
        assert status(server, "track-token-no-0") == status(server, "wrong") == 401
        secrets_manager.server.stop()
        assert [status(server, token) for token in tokens] == [200] * 4, "an outage stops nothing"
        assert status(server, "wrong") == 401
        text = server.log.read_text()
    assert "BROKER_ADMIN_TOKEN was rotated" in text
    assert "The previous values stay in force" in text
    assert not any(token in text for token in tokens)
    said = start_error(tmp_path, environment)
    assert said.startswith("BROKER_API_TOKEN: the secret lab/tokens can't be read"), said


def start_error(folder: Path, environment: dict[str, str]) -> str:
    """What a server says that can't start, in one line for each mistake."""
    log = folder / "refused.log"
    process = run_sandyard(
        *("serve", "--port", "1", "--data-dir", str(folder / "other")),
        environment=environment,
        log=log,
    )
    process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Traceback" not in log.read_text()
    return log.read_text().removeprefix("sandyard: ")


async def test_every_secret_in_a_file_is_read_again_on_sighup(
    tmp_path: Path, postgres_url: str
) -> None:
    """On PostgreSQL, as a role whose password changes too."""
    url = await with_role(postgres_url, "password-number-0")
    files = {
        name: tmp_path / name.lower()
        for name in ("METRICS_TOKEN", "TELEMETRY_ADMIN_TOKEN", "DATABASE_PASSWORD")
    }
    write(files, "0")
    environment = {name: f"file:{file}" for name, file in files.items()}
    environment |= {"DATABASE_URL": url, "PARTS": "telemetry", "DATABASE_POOL_SIZE": "2"}
    upgrade(environment, tmp_path)
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        assert status(server, "metrics-token-number-0", "/metrics") == 200
        await change_password(postgres_url, url, "password-number-1")
        write(files, "1")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: "METRICS_TOKEN was rotated" in server.log.read_text(), "rotated")
        for version in "01":
            assert status(server, f"metrics-token-number-{version}", "/metrics") == 200
            path = "/telemetry/v1/devices"
            assert status(server, f"telemetry-admin-token-number-{version}", path) == 200
        await end_connections(postgres_url, url)
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(url, password="password-number-0")
        eventually(
            lambda: httpx.get(server.url + "/readyz", timeout=60).status_code == 200, "reconnected"
        )
        assert server.stop() == 0


def write(files: dict[str, Path], version: str) -> None:
    for name, file in files.items():
        kind = "password" if name == "DATABASE_PASSWORD" else name.lower().replace("_", "-")
        file.write_text(f"{kind}-number-{version}\n")


def upgrade(environment: dict[str, str], folder: Path) -> None:
    process = run_sandyard("db", "upgrade", environment=environment, log=folder / "upgrade.log")
    process.communicate(timeout=120)
    assert process.returncode == 0, (folder / "upgrade.log").read_text()


async def with_role(server_url: str, password: str) -> str:
    """A database of a role that logs in by password; gives its URL, without the password."""
    name = sa.make_url(await create_database(server_url)).database
    connection = await asyncpg.connect(server_url)
    await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
    await connection.execute(f"ALTER DATABASE {name} OWNER TO {name}")
    rules = Path(await connection.fetchval("SHOW hba_file"))
    rules.write_text(f"local {name} {name} scram-sha-256\n{rules.read_text()}")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()
    return f"postgresql://{name}@/{name}?host={sa.make_url(server_url).query['host']}"


async def change_password(server_url: str, url: str, password: str) -> None:
    connection = await asyncpg.connect(server_url)
    await connection.execute(f"ALTER ROLE {sa.make_url(url).username} PASSWORD '{password}'")
    await connection.close()


async def end_connections(server_url: str, url: str) -> None:
    connection = await asyncpg.connect(server_url)
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1"
    assert await connection.fetch(query, sa.make_url(url).username)
    await connection.close()
