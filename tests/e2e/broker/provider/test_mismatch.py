"""A pool that was served with one provider, and then with another, as processes."""

import subprocess
from pathlib import Path

import sqlalchemy as sa

from sandyard.broker.provider.service import PoolProvider
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.entrypoints.server.data_dir import locked
from sandyard.kit.clock import SystemClock
from sandyard.kit.sql.database import Database, PostgresDatabase, SqliteDatabase
from tests.support.broker.pools import fill
from tests.support.servers.processes import run_command, run_sandyard
from tests.support.storage.engines import AWS_ENVIRONMENT, create_database, pool_table

DEMO = {"PARTS": "broker"}


def run(*arguments: str, environment: dict[str, str], tmp_path: Path) -> tuple[int, str]:
    """The exit code, and what was said on either stream."""
    log = tmp_path / "stderr"
    log.unlink(missing_ok=True)
    process = run_sandyard(*arguments, environment=environment, log=log)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output.decode() + log.read_text()


async def remember(database: Database, provider: str) -> None:
    """A pool with a sandbox of this provider, in a database of its own."""
    await MIGRATIONS.upgrade(database)
    store = SqlPoolStore(database)
    await PoolProvider(store, clock=SystemClock(), configured=provider).require()
    await fill(store, 1)
    await database.close()


async def test_a_pool_of_the_simulated_provider_is_not_served_with_a_real_one(
    tmp_path: Path,
) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    database = SqliteDatabase(tmp_path / "data" / "broker.db", schema="broker")
    await remember(database, "simulated")
    real = DEMO | {"CSP_BASE_URL": "http://127.0.0.1:9", "LOG_LEVEL": "ERROR"}
    for command in (("serve", "--port", "8099"), ("jobs", "run", "cleanup")):
        code, said = run(*command, *data, environment=real, tmp_path=tmp_path)
        assert code == 1
        assert said.startswith("sandyard: The pool belongs to the simulated provider")
        assert "choose another --data-dir" in said
        assert said.count("\n") == 1
    code, said = run("pool", "set-provider", "--yes", *data, environment=real, tmp_path=tmp_path)
    assert (code, "never belong to a real one" in said) == (1, True)
    code, said = run("jobs", "run", "expiry", *data, environment=real, tmp_path=tmp_path)
    assert (code, said) == (0, '{"expired":0}\n'), "it asks no provider"


OLD, NEW = "https://old.example.com", "https://new.example.com"


def answer(said: str, *, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """`pool set-provider` to the new address, with this answer to its question."""
    command = ["pool", "set-provider", "--data-dir", str(tmp_path)]
    return run_command(*command, environment=DEMO | {"CSP_BASE_URL": NEW}, text=said)


async def test_set_provider_asks_with_both_addresses_once_the_data_dir_is_free(
    tmp_path: Path,
) -> None:
    await remember(SqliteDatabase(tmp_path / "broker.db", schema="broker"), OLD)
    with locked(tmp_path):
        busy = answer("y\n", tmp_path=tmp_path)
    assert (busy.returncode, busy.stderr.count("\n")) == (1, 1)
    assert "Another process uses" in busy.stderr
    refused = answer("n\n", tmp_path=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"is {OLD} and becomes {NEW}." in refused.stderr
    assert refused.stderr.endswith("Nothing was changed.\n")
    changed = answer("y\n", tmp_path=tmp_path)
    assert (changed.returncode, changed.stdout) == (0, f"provider: {NEW} (before: {OLD})\n")


REFUSED = "sandyard: The pool belongs to the provider at https://csp.example.com, and"
TOKENS = {"BROKER_API_TOKEN": "a" * 16, "BROKER_ADMIN_TOKEN": "b" * 16, "LOG_LEVEL": "ERROR"}


async def test_nor_is_a_real_ones_on_postgresql_by_one_process_or_several(
    tmp_path: Path, postgres_url: str
) -> None:
    url = await create_database(postgres_url)
    await remember(PostgresDatabase(sa.make_url(url), pool_size=1), "https://csp.example.com")
    shared = DEMO | TOKENS | {"DATABASE_URL": url}
    elsewhere = shared | {"CSP_BASE_URL": "http://127.0.0.1:9"}
    for environment, workers in ((shared, "1"), (elsewhere, "2")):
        serve = ("serve", "--port", "8099", "--data-dir", str(tmp_path / "data"))
        code, said = run(*serve, "--workers", workers, environment=environment, tmp_path=tmp_path)
        assert (code, said.startswith(REFUSED)) == (1, True), said


async def test_nor_on_dynamodb(tmp_path: Path, dynamo_url: str) -> None:
    async with pool_table(dynamo_url) as pool:
        store = DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=1)
        await PoolProvider(
            store, clock=SystemClock(), configured="https://csp.example.com"
        ).require()
        names = {"DDB_TABLE_NAME": pool.names.table, "DDB_ENDPOINT_URL": dynamo_url}
    environment = DEMO | TOKENS | AWS_ENVIRONMENT | names | {"POOL_STORE": "dynamodb"}
    serve = ("serve", "--port", "8099", "--data-dir", str(tmp_path / "data"))
    code, said = run(*serve, environment=environment, tmp_path=tmp_path)
    assert (code, said.startswith(REFUSED)) == (1, True), said
