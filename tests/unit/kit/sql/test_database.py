"""The group commit, and what each engine does when a transaction fails."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql.batches import BatchInsert, run_in_driver
from sandyard.kit.sql.database import Database, SqliteDatabase
from tests.simulation.engine import SharedSqlite
from tests.simulation.loop import Process
from tests.simulation.network import Network
from tests.support.storage.disks import small_disk
from tests.support.storage.engines import SQL_ENGINES, sql_database

things = sa.Table(
    "things",
    sa.MetaData(schema="things"),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("n", sa.Integer),
)


def create_things(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.schema.CreateSchema("things"))
    things.create(connection)


@pytest.fixture(params=[*SQL_ENGINES, "simulated"])
async def db(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str
) -> AsyncIterator[Database]:
    """The one that simulations run on keeps the same promises, so that the stores on it do."""
    if request.param == "simulated":
        shared = SharedSqlite("things")
        simulated = shared.connect(Network(random.Random(0)), Process())
        await simulated.write(create_things)
        yield simulated
        await shared.close()
        return
    async with sql_database(request.param, tmp_path, postgres_url, schema="things") as database:
        await database.write(create_things)
        yield database


async def insert(db: Database, number: int) -> int:
    def work(connection: sa.Connection) -> int:
        connection.execute(things.insert().values(id=number))
        return number

    return await db.write(work)


async def count(db: Database) -> int | None:
    return await db.read(lambda c: c.scalar(sa.select(sa.func.count()).select_from(things)))


async def test_a_statement_of_the_driver_fails_as_any_other(db: Database) -> None:
    await insert(db, 1)
    add = BatchInsert(things, ("id",))
    with pytest.raises(sa.exc.IntegrityError):
        await db.write(lambda c: add.execute(c, [(2,), (1,)]))
    assert await count(db) == 1
    await db.write(things.drop)
    with pytest.raises(UnavailableError):
        await db.write(lambda c: add.execute(c, [(3,)]))


async def test_a_connection_that_the_driver_lost_is_not_used_again(
    tmp_path: Path, postgres_url: str
) -> None:
    opened = sql_database("postgresql", tmp_path, postgres_url, schema="things", pool_size=1)
    async with opened as database:
        await database.write(create_things)
        add = BatchInsert(things, ("id",))
        end = "SELECT pg_terminate_backend(pg_backend_pid())"
        with pytest.raises(UnavailableError):
            await database.write(lambda c: run_in_driver(c, end, ()))
        await database.write(lambda c: add.execute(c, [(1,)]))
        assert await count(database) == 1


async def test_writes_that_wait_are_committed_together_and_fail_alone(db: Database) -> None:
    await insert(db, 7)
    results = await asyncio.gather(
        *(insert(db, number) for number in range(20)), return_exceptions=True
    )
    failed = [n for n, result in enumerate(results) if isinstance(result, Exception)]
    assert failed == [7]
    assert isinstance(results[7], sa.exc.IntegrityError)
    assert await count(db) == 20


async def test_a_write_that_raises_changes_nothing(db: Database) -> None:
    def work(connection: sa.Connection) -> None:
        connection.execute(things.insert().values(id=1))
        raise LookupError

    with pytest.raises(LookupError):
        await db.write(work)
    assert await count(db) == 0
    assert await insert(db, 1) == 1


async def test_a_caller_that_leaves_does_not_undo_the_others(db: Database) -> None:
    tasks = [asyncio.create_task(insert(db, number)) for number in range(10)]
    await asyncio.sleep(0)
    tasks[3].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [r for n, r in enumerate(results) if n != 3] == [n for n in range(10) if n != 3]


async def test_a_missing_table_is_an_engine_that_is_not_ready(db: Database) -> None:
    await db.write(things.drop)
    with pytest.raises(UnavailableError) as told:
        await insert(db, 1)
    assert told.value.reason
    assert "things" not in told.value.message, "what the engine said is for the log"


async def test_readers_cannot_write(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "things.db", schema="things")
    await database.write(create_things)
    with pytest.raises(UnavailableError):
        await database.read(lambda c: c.execute(things.insert().values(id=1)))
    await database.close()


async def test_sqlite_is_durable(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "things.db", schema="things")

    def pragmas(connection: sa.Connection) -> tuple[object, object]:
        return (
            connection.exec_driver_sql("PRAGMA things.journal_mode").scalar(),
            connection.exec_driver_sql("PRAGMA things.synchronous").scalar(),
        )

    full = 2
    assert await database.write(pragmas) == ("wal", full)
    await database.close()


async def test_a_lost_deadlock_is_run_again(tmp_path: Path, postgres_url: str) -> None:
    opened = sql_database("postgresql", tmp_path, postgres_url, schema="things", pool_size=4)
    async with opened as database:
        await database.write(create_things)
        await insert(database, 1)
        await insert(database, 2)
        runs = 0
        locked: set[int] = set()

        def bump(first: int, second: int) -> object:
            def work(connection: sa.Connection) -> None:
                nonlocal runs
                runs += 1
                for number in (first, second):
                    connection.execute(
                        things.update()
                        .where(things.c.id == number)
                        .values(n=sa.func.coalesce(things.c.n, 0) + 1)
                    )
                    locked.add(number)
                    while len(locked) < 2:  # until each holds what the other wants
                        connection.execute(sa.select(sa.func.pg_sleep(0.01)))

            return work

        await asyncio.gather(database.write(bump(1, 2)), database.write(bump(2, 1)))  # type: ignore[arg-type]
        assert runs > 2  # the other may lose the next one
        total = await database.read(lambda c: c.scalar(sa.select(sa.func.sum(things.c.n))))
        assert total == 4


async def test_no_connection_is_left_checked_out(tmp_path: Path, postgres_url: str) -> None:
    opened = sql_database("postgresql", tmp_path, postgres_url, schema="things", pool_size=3)
    async with opened as database:
        await database.write(create_things)
        await asyncio.gather(*(insert(database, n % 5) for n in range(40)), return_exceptions=True)
        tasks = [asyncio.create_task(insert(database, n)) for n in range(100, 130)]
        await asyncio.sleep(0.005)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert database._engine.pool.checkedout() == 0  # type: ignore[attr-defined]


async def test_sqlite_without_room_says_so_to_all_and_goes_on_when_there_is_some(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path, megabytes=1) as disk:
        database = SqliteDatabase(disk.path / "things.db", schema="things")
        await database.write(create_things)
        disk.fill()
        results = await asyncio.gather(
            *(insert(database, number) for number in range(20)), return_exceptions=True
        )
        assert {str(each) for each in results} == {
            "The sqlite engine can't write: its disk is full. Nothing was changed; free some space."
        }
        assert await count(database) == 0
        disk.free()
        assert await insert(database, 1) == 1
        await database.close()


async def test_a_write_that_fills_the_file_takes_those_beside_it_down_with_their_reason(
    tmp_path: Path,
) -> None:
    """The engine rolls everything back, also what was in savepoints of its own."""
    database = SqliteDatabase(tmp_path / "things.db", schema="things")
    await database.write(create_things)

    def limit(connection: sa.Connection) -> None:
        connection.exec_driver_sql("PRAGMA things.max_page_count = 8")

    def insert_many(connection: sa.Connection) -> None:
        connection.execute(things.insert(), [{"id": number} for number in range(100, 20_000)])

    await database.write(limit)
    first = asyncio.create_task(insert(database, 1))
    await asyncio.sleep(0)  # the others are a group of their own
    results = await asyncio.gather(
        insert(database, 2), database.write(insert_many), return_exceptions=True
    )
    assert await first == 1
    assert [type(each) for each in results] == [UnavailableError, UnavailableError]
    assert all("disk is full" in str(each) for each in results)
    assert await count(database) == 1
    assert await insert(database, 2) == 2
    await database.close()
