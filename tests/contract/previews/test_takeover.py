"""What version 0.1.0 kept of previews in the Platform's schema is in Previews' own afterwards."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.bootstrap.previews import open_log
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.sql.column_types import UtcTime
from sandyard.kit.sql.database import Database, open_database
from sandyard.kit.sql.migrations import Migrations
from sandyard.platform.events.entities import platform_transitions
from sandyard.platform.projects.sql import SqlProjectStore
from sandyard.platform.schema.migrations import MIGRATIONS as PLATFORM
from sandyard.previews.model import Attempt, Preview, SandboxInfo, abandon_attempt, iso
from sandyard.previews.stores.schema import MIGRATIONS as PREVIEWS
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.previews.stores.tables import metadata
from sandyard.previews.verification import verify
from tests.support.storage.engines import SQL_ENGINES, create_database

OWNER = "100000000001"
MADE = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
LATER = MADE + timedelta(hours=1)
INFO = SandboxInfo(
    sandbox_id="sbx-1",
    preview_url="https://one.example.com",
    start_time=datetime(2026, 1, 1, 13, 0, 0, 500000, tzinfo=UTC),
    end_time=datetime(2026, 1, 1, 13, 30, 0, 500000, tzinfo=UTC),
    attempt="made-it",
    files_version=2,
)
CHECKED = datetime(2026, 1, 1, 13, 1, tzinfo=UTC)
STORED = INFO.as_json() | {"last_checked": iso(CHECKED)}
OLD = {"sandbox_id": INFO.sandbox_id, "preview_url": INFO.preview_url}
RUNNING, DELETED, BEING_MADE, ONLY_OLD, ONLY_FILES, NOTHING = (f"prj-{n:017}" for n in range(6))
ROWS: dict[str, dict[str, Any]] = {
    RUNNING: {"sandbox_info": STORED, **OLD, "preview_revision": 7, "files_version": 2},
    DELETED: {"sandbox_info": STORED, **OLD, "preview_revision": 1, "deleted_at": LATER},
    BEING_MADE: {"preview_attempt": "makes-it", "preview_attempt_until": LATER},
    ONLY_OLD: {"sandbox_id": "sbx-old", "preview_url": None},
    ONLY_FILES: {"files_version": 1},
    NOTHING: {},
}
FILES = [
    (RUNNING, "index.html", b"hello \x00\xff", False, 1),
    (RUNNING, "gone.css", b"", True, 2),
    (ONLY_FILES, "b.txt", "ä".encode(), False, 1),
    (DELETED, "secret.txt", b"what-nobody-may-read-any-more", False, 1),
]
EXPECTED = {
    RUNNING: Preview(RUNNING, OWNER, MADE, INFO, None, 2, CHECKED, sequence=8),
    DELETED: Preview(DELETED, OWNER, MADE, INFO, None, 0, CHECKED, sequence=2),
    BEING_MADE: Preview(BEING_MADE, OWNER, MADE, None, Attempt("makes-it", LATER), sequence=1),
    ONLY_FILES: Preview(ONLY_FILES, OWNER, MADE, files_version=1, sequence=1),
}


def table(name: str, /, **columns: Any) -> sa.TableClause:
    made = (sa.column(column, type_) for column, type_ in columns.items())
    return sa.table(name, *made, schema="platform")


USERS = table(
    "users",
    **dict.fromkeys(("account_id", "email", "username", "password_hash"), sa.String),
    created_at=UtcTime,
    updated_at=UtcTime,
)
PROJECTS = table(
    "projects",
    **dict.fromkeys(
        ("project_id", "name", "owner_account_id", "sandbox_id", "preview_url", "preview_attempt"),
        sa.String,
    ),
    **dict.fromkeys(("created_at", "updated_at", "deleted_at", "preview_attempt_until"), UtcTime),
    sandbox_info=sa.JSON(none_as_null=True),
    preview_revision=sa.Integer,
    files_version=sa.Integer,
)
PROJECT_FILES = table(
    "project_files",
    **dict.fromkeys(("project_id", "path"), sa.String),
    content=sa.LargeBinary,
    is_deleted=sa.Boolean,
    **dict.fromkeys(("size", "version"), sa.Integer),
    updated_at=UtcTime,
)


class Engines:
    """One database or data dir, of which each part opens its own schema."""

    def __init__(self, url: str | None, data_dir: Path) -> None:
        self._url = url
        self._data_dir = data_dir

    @asynccontextmanager
    async def open(self, part: str) -> AsyncIterator[Database]:
        database = open_database(self._url, data_dir=self._data_dir, part=part, pool_size=2)
        try:
            yield database
        finally:
            await database.close()

    async def upgrade(self, migrations: Migrations, to: str = "head") -> None:
        async with self.open(migrations.part) as database:
            await migrations.upgrade(database, to)


@pytest.fixture(params=SQL_ENGINES)
async def engines(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> Engines:
    url = None if request.param == "sqlite" else await create_database(postgres_url)
    return Engines(url, tmp_path)


def fill(connection: sa.Connection) -> None:
    """As version 0.1.0 wrote it."""
    times = {"created_at": MADE, "updated_at": MADE}
    user = {"account_id": OWNER, "email": "a@b.c", "username": "ann", "password_hash": "h"}
    connection.execute(USERS.insert().values(user | times))
    for project_id, row in ROWS.items():
        values = {"project_id": project_id, "name": project_id, "owner_account_id": OWNER, **times}
        connection.execute(PROJECTS.insert().values(values | row))
    for project_id, path, content, is_deleted, version in FILES:
        values = {"project_id": project_id, "path": path, "content": content, "updated_at": MADE}
        more = {"size": len(content), "is_deleted": is_deleted, "version": version}
        connection.execute(PROJECT_FILES.insert().values(values | more))


async def at_version_0_1_0(engines: Engines) -> None:
    async with engines.open("platform") as database:
        await PLATFORM.upgrade(database, "0002")
        await database.write(fill)


@pytest.mark.parametrize("order", [(PLATFORM, PREVIEWS), (PREVIEWS, PLATFORM)])
async def test_everything_is_there_whichever_is_upgraded_first(
    engines: Engines, order: tuple[Migrations, ...]
) -> None:
    await at_version_0_1_0(engines)
    for migrations in (*order, *order):
        await engines.upgrade(migrations)
    async with engines.open("previews") as database:
        store = SqlPreviewStore(database)
        assert {each: await store.find(each) for each in EXPECTED} == EXPECTED
        old = await store.find(ONLY_OLD)
        assert old is not None
        assert old.info is not None
        assert (old.info.sandbox_id, old.info.is_estimated) == ("sbx-old", True)
        assert await store.find(NOTHING) is None
        files = [(f.path, f.content, f.version) for f in await store.files(RUNNING)]
        assert files == [("index.html", b"hello \x00\xff", 1)]
        assert await store.changes_since(RUNNING, 1) == ({}, ["gone.css"], 2)
        assert [f.content for f in await store.files(ONLY_FILES)] == ["ä".encode()]


async def test_the_files_of_deleted_projects_are_removed_where_they_were_too(
    engines: Engines,
) -> None:
    await at_version_0_1_0(engines)
    for migrations in (PLATFORM, PREVIEWS):
        await engines.upgrade(migrations)
    async with engines.open("platform") as database:
        store = SqlProjectStore(database, platform_transitions(database))
        assert await store.uncleared_projects(after="", limit=9) == [DELETED]
        await store.clear_projects([DELETED], at=LATER)
        assert await store.uncleared_projects(after="", limit=9) == []
        statement = sa.select(PROJECT_FILES.c.project_id).distinct()
        left = await database.read(lambda c: c.execute(statement).scalars().all())
        assert set(left) == {RUNNING, ONLY_FILES}


@pytest.mark.parametrize("is_finished", [False, True])
async def test_each_has_a_baseline_that_later_changes_add_to(
    engines: Engines, is_finished: bool
) -> None:
    await at_version_0_1_0(engines)
    if is_finished:
        async with engines.open("platform") as database:
            await database.write(drop_old_columns)
    await engines.upgrade(PREVIEWS, "0001")
    await engines.upgrade(PREVIEWS)
    async with engines.open("previews") as database:
        store, log = SqlPreviewStore(database), open_log(database)
        report = await verify(store, log)
        assert (report.subjects, report.problems) == (4 if is_finished else 5, [])
        [baseline] = (await log.state_events([RUNNING]))[RUNNING]
        assert (baseline.kind, baseline.sequence) == ("baseline", 8)
        assert baseline.account_id == OWNER
        preview = await store.find(BEING_MADE)
        assert preview is not None
        cause = Cause("account:1", 1_800_000_000_000)
        abandoned = abandon_attempt(preview, "makes-it", cause=cause)
        assert abandoned is not None
        assert await store.apply(abandoned)
        assert (await verify(store, log)).problems == []


async def test_when_the_provider_last_told_goes_back_into_sandbox_info(engines: Engines) -> None:
    await at_version_0_1_0(engines)
    await engines.upgrade(PREVIEWS)
    async with engines.open("previews") as database:
        await PREVIEWS.downgrade(database, "0001")
        select = sa.select(sa.column("sandbox_info", sa.JSON)).select_from(
            sa.table("previews", schema="previews")
        )
        statement = select.where(sa.column("project_id") == RUNNING)
        stored = await database.read(lambda c: c.execute(statement).scalar_one())
        assert stored == STORED
        await PREVIEWS.upgrade(database)
        assert await SqlPreviewStore(database).find(RUNNING) == EXPECTED[RUNNING]


async def test_what_runs_is_found_as_before(engines: Engines) -> None:
    await at_version_0_1_0(engines)
    await engines.upgrade(PREVIEWS)
    end = INFO.end_time
    moments = {
        MADE: {RUNNING, DELETED, BEING_MADE, ONLY_OLD},
        MADE + timedelta(minutes=31): {RUNNING, DELETED, BEING_MADE},
        LATER: {RUNNING, DELETED, BEING_MADE},
        end - timedelta(milliseconds=1): {RUNNING, DELETED, BEING_MADE},
        end: {BEING_MADE},
    }
    async with engines.open("previews") as database:
        store = SqlPreviewStore(database)
        for now, expected in moments.items():
            assert (await store.running(OWNER, at=now)).project_ids == expected, now


async def test_a_finished_migration_of_the_old_columns_stays_finished(engines: Engines) -> None:
    await at_version_0_1_0(engines)
    async with engines.open("platform") as database:
        await database.write(drop_old_columns)
    await engines.upgrade(PREVIEWS)
    async with engines.open("previews") as database:
        columns = await database.read(column_names)
        assert not {"sandbox_id", "preview_url"} & columns["previews"]
        assert await SqlPreviewStore(database).find(RUNNING) == EXPECTED[RUNNING]


def drop_old_columns(connection: sa.Connection) -> None:
    for column in ("sandbox_id", "preview_url"):
        connection.execute(sa.text(f"ALTER TABLE platform.projects DROP COLUMN {column}"))


def column_names(connection: sa.Connection) -> dict[str, set[str]]:
    inspector = sa.inspect(connection)
    return {
        each.name: {column["name"] for column in inspector.get_columns(each.name, "previews")}
        for each in metadata.sorted_tables
    }


@pytest.mark.parametrize("version", [None, "0001"])
async def test_a_platform_without_previews_has_none_to_take_over(
    engines: Engines, version: str | None
) -> None:
    if version is not None:
        await engines.upgrade(PLATFORM, version)
    await engines.upgrade(PREVIEWS)
    await engines.upgrade(PLATFORM)
    async with engines.open("previews") as database:
        assert await SqlPreviewStore(database).page(after="", limit=9) == []


async def test_the_tables_in_the_code_are_those_in_the_database(engines: Engines) -> None:
    await engines.upgrade(PREVIEWS)
    async with engines.open("previews") as database:
        expected = {each.name: set(each.columns.keys()) for each in metadata.sorted_tables}
        assert await database.read(column_names) == expected
        await PREVIEWS.downgrade(database)
        assert await PREVIEWS.current(database) is None
        await PREVIEWS.upgrade(database)
