"""From the old columns to `sandbox_info`, back to the letter, and forward again."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.kit.ids import resource_id
from sandyard.kit.sql import Database, open_database
from sandyard.platform.tables import projects as platform_projects
from sandyard.platform.tables import users
from sandyard.previews.errors import MigrationRefusedError
from sandyard.previews.stores.old_columns import OldColumns
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.previews.stores.tables import projects

PROJECTS = 10_000
MADE = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
ACCOUNT = "123456789012"


def silent(_done: int) -> None:
    return


@pytest.fixture
async def database(database_url: str | None, tmp_path: Path) -> AsyncIterator[Database]:
    database = open_database(database_url, data_dir=tmp_path, part="platform", pool_size=4)
    await database.write(_fill)
    yield database
    await database.close()


def _fill(connection: sa.Connection) -> None:
    connection.execute(
        users.insert().values(
            account_id=ACCOUNT,
            email="a@example.com",
            username="a",
            password_hash="x",
            role="user",
            is_active=True,
            is_verified=True,
            token_version=0,
            created_at=MADE,
            updated_at=MADE,
        )
    )
    ids = [resource_id("prj") for _ in range(PROJECTS)]
    connection.execute(
        platform_projects.insert(),
        [
            {
                "project_id": project_id,
                "name": f"project {number}",
                "owner_account_id": ACCOUNT,
                "status": "active",
                "is_default": number == 0,
                "created_at": MADE,
                "updated_at": MADE,
            }
            for number, project_id in enumerate(ids)
        ],
    )
    connection.execute(
        projects.update()
        .where(projects.c.project_id == sa.bindparam("which"))
        .values(sandbox_id=sa.bindparam("box"), preview_url=sa.bindparam("url")),
        [
            {"which": project_id, "box": old["sandbox_id"], "url": old["preview_url"]}
            for number, project_id in enumerate(ids)
            if (old := _old(number))
        ],
    )


def _old(number: int) -> dict[str, str | None]:
    """Rows of every kind: both, one, none, empty and odd texts."""
    odd = 'ü `quotes` " \\ %s \t end '
    kinds: list[dict[str, str | None]] = [
        {"sandbox_id": f"sbx-{number}", "preview_url": f"https://{number}.example.com"},
        {"sandbox_id": None, "preview_url": None},
        {"sandbox_id": f"sbx-{number}", "preview_url": None},
        {"sandbox_id": None, "preview_url": f"https://{number}.example.com/{odd}"},
        {"sandbox_id": "", "preview_url": odd},
    ]
    return kinds[number % 5]


async def old_columns(database: Database) -> list[tuple[Any, ...]]:
    statement = sa.text(
        "SELECT project_id, sandbox_id, preview_url FROM platform.projects ORDER BY id"
    )
    rows = await database.read(lambda connection: connection.execute(statement).all())
    return [tuple(row) for row in rows]


async def infos(database: Database) -> list[Any]:
    statement = sa.select(projects.c.sandbox_info).order_by(projects.c.id)
    rows = await database.read(lambda connection: connection.execute(statement).all())
    return [row[0] for row in rows]


async def test_run_twice_validate_roll_back_and_run_again(database: Database) -> None:
    migration = OldColumns(database)
    before = await old_columns(database)
    first = await migration.run(silent)
    assert (first.looked_at, first.changed) == (PROJECTS, PROJECTS * 4 // 5)
    filled = await infos(database)
    assert filled[0] == {
        "sandbox_id": "sbx-0",
        "preview_url": "https://0.example.com",
        "start_time": "2026-01-01T12:00:00.123Z",
        "end_time": "2026-01-01T12:30:00.123Z",
        "migrated": True,
    }
    assert (await migration.run(silent)).changed == 0
    assert await infos(database) == filled
    assert (await migration.validate(silent)).differences == []
    await migration.rollback(silent)
    assert await old_columns(database) == before
    assert set(map(str, await infos(database))) == {"None"}
    assert (await migration.run(silent)).changed == first.changed
    assert await infos(database) == filled


async def test_what_old_code_wrote_in_between_is_caught(database: Database) -> None:
    migration = OldColumns(database)
    await migration.run(silent)
    rows = await old_columns(database)
    changes: list[dict[str, str | None]] = [
        {"sandbox_id": "sbx-other"},
        {"preview_url": "https://new.example.com"},
        {"sandbox_id": None},
    ]

    def by_old_code(connection: sa.Connection) -> None:
        for row, change in zip(rows, changes, strict=False):
            where = projects.c.project_id == row[0]
            connection.execute(projects.update().where(where).values(**change))

    await database.write(by_old_code)
    found = (await migration.validate(silent)).differences
    assert [line.split(":")[0] for line in found] == [rows[0][0], rows[1][0], rows[2][0]]
    with pytest.raises(MigrationRefusedError):
        await migration.finish(silent)


async def test_the_old_columns_are_dropped_and_come_back_to_the_letter(database: Database) -> None:
    migration = OldColumns(database)
    before = await old_columns(database)
    await migration.run(silent)
    running = SqlPreviewStore(database)
    assert await running.find(before[0][0], account_id=ACCOUNT) is not None
    await migration.finish(silent)
    columns = await database.read(
        lambda c: {col["name"] for col in sa.inspect(c).get_columns("projects", schema="platform")}
    )
    assert not {"sandbox_id", "preview_url"} & columns
    for store in (SqlPreviewStore(database), running):
        preview = await store.find(before[0][0], account_id=ACCOUNT)
        assert preview is not None
        assert preview.info is not None
        assert preview.info.sandbox_id == "sbx-0"
        assert await store.update(preview, preview.info)
    with pytest.raises(MigrationRefusedError):
        await migration.run(silent)
    await migration.rollback(silent)
    assert await old_columns(database) == before


async def test_both_are_written_and_either_may_be_read(database: Database) -> None:
    await OldColumns(database).run(silent)
    rows = await old_columns(database)
    new, old = SqlPreviewStore(database), SqlPreviewStore(database, reads="old")
    project_id = rows[0][0]
    seen = await new.find(project_id, account_id=ACCOUNT)
    assert seen is not None
    assert seen.info is not None
    running = replace(
        seen.info,
        sandbox_id="sbx-new",
        preview_url="https://new",
        end_time=MADE + timedelta(days=1),
    )
    assert await new.update(seen, running)
    assert (await old_columns(database))[0][1:] == ("sbx-new", "https://new")
    for store in (new, old):
        found = await store.find(project_id, account_id=ACCOUNT)
        assert found is not None
        assert found.info is not None
        assert found.info.sandbox_id == "sbx-new"
    change = sa.text(
        "UPDATE platform.projects SET sandbox_id = 'by-old-code' WHERE project_id = :p"
    )
    await database.write(lambda connection: connection.execute(change, {"p": project_id}))
    by_old = await old.find(project_id, account_id=ACCOUNT)
    by_new = await new.find(project_id, account_id=ACCOUNT)
    assert by_old is not None
    assert by_new is not None
    assert by_old.info is not None
    assert by_new.info is not None
    assert (by_old.info.sandbox_id, by_new.info.sandbox_id) == ("by-old-code", "sbx-new")
