"""From the old columns to `sandbox_info`, back to the letter, and forward again."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.bootstrap.previews import open_log
from sandyard.kit.changes.events import EventQuery
from sandyard.kit.changes.transitions import Cause, ConflictRetries, state_of
from sandyard.kit.sql.database import Database, open_database
from sandyard.previews.errors import MigrationRefusedError
from sandyard.previews.model import (
    Attempt,
    Quota,
    RunningPreviews,
    begin_attempt,
    record_files,
    record_sandbox,
)
from sandyard.previews.stores.old_columns import OldColumns
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.previews.stores.tables import previews
from sandyard.previews.verification import verify
from tests.support.clocks import ManualClock

PROJECTS = 2_000
MADE = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
ACCOUNT = "123456789012"
CLOCK = ManualClock(1_800_000_000)
CAUSE = Cause("operator", 1_800_000_000_000)
NOBODY = Quota(1, RunningPreviews(ACCOUNT, MADE + timedelta(hours=1), frozenset()))


def silent(_done: int) -> None:
    return


@pytest.fixture
async def database(
    old_columns: None, database_url: str | None, tmp_path: Path
) -> AsyncIterator[Database]:
    database = open_database(database_url, data_dir=tmp_path, part="previews", pool_size=4)
    await database.write(_fill)
    yield database
    await database.close()


def _fill(connection: sa.Connection) -> None:
    connection.execute(
        previews.insert(),
        [
            {
                "project_id": f"prj-{number:017}",
                "account_id": ACCOUNT,
                "created_at": MADE,
                "files_version": 0,
                "sequence": 1,
                **_old(number),
            }
            for number in range(PROJECTS)
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


async def read_old_columns(database: Database) -> list[tuple[Any, ...]]:
    statement = sa.text(
        "SELECT project_id, sandbox_id, preview_url FROM previews.previews ORDER BY project_id"
    )
    rows = await database.read(lambda connection: connection.execute(statement).all())
    return [tuple(row) for row in rows]


async def infos(database: Database) -> list[Any]:
    statement = sa.select(previews.c.sandbox_info).order_by(previews.c.project_id)
    rows = await database.read(lambda connection: connection.execute(statement).all())
    return [row[0] for row in rows]


async def test_run_twice_validate_roll_back_and_run_again(database: Database) -> None:
    migration = OldColumns(database, clock=CLOCK)
    before = await read_old_columns(database)
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
    assert await read_old_columns(database) == before
    assert set(map(str, await infos(database))) == {"None"}
    assert (await migration.run(silent)).changed == first.changed
    assert await infos(database) == filled


async def test_what_old_code_wrote_in_between_is_caught(database: Database) -> None:
    migration = OldColumns(database, clock=CLOCK)
    await migration.run(silent)
    rows = await read_old_columns(database)
    changes: list[dict[str, str | None]] = [
        {"sandbox_id": "sbx-other"},
        {"preview_url": "https://new.example.com"},
        {"sandbox_id": None},
    ]

    def by_old_code(connection: sa.Connection) -> None:
        for row, change in zip(rows, changes, strict=False):
            where = previews.c.project_id == row[0]
            connection.execute(previews.update().where(where).values(**change))

    await database.write(by_old_code)
    found = (await migration.validate(silent)).differences
    assert [line.split(":")[0] for line in found] == [rows[0][0], rows[1][0], rows[2][0]]
    with pytest.raises(MigrationRefusedError):
        await migration.finish(silent)


async def test_the_old_columns_are_dropped_and_come_back_to_the_letter(database: Database) -> None:
    migration = OldColumns(database, clock=CLOCK, noticed_sec=0)
    before = await read_old_columns(database)
    await migration.run(silent)
    running = SqlPreviewStore(database)
    assert await running.find(before[0][0]) is not None
    await migration.finish(silent)
    columns = await database.read(
        lambda c: {col["name"] for col in sa.inspect(c).get_columns("previews", schema="previews")}
    )
    assert not {"sandbox_id", "preview_url"} & columns
    for store in (SqlPreviewStore(database), running):
        preview = await store.find(before[0][0])
        assert preview is not None
        assert preview.info is not None
        assert preview.info.sandbox_id == "sbx-0"
        version = preview.info.files_version + 1
        after = record_files(preview, "sbx-0", version=version, cause=CAUSE)
        assert after is not None
        assert await store.apply(after)
    with pytest.raises(MigrationRefusedError):
        await migration.run(silent)
    await migration.rollback(silent)
    assert await read_old_columns(database) == before


async def test_servers_go_on_through_finish_and_rollback(database: Database) -> None:
    """Without a restart: what they change meanwhile is in the columns that are there then."""
    migration = OldColumns(database, clock=CLOCK, noticed_sec=1)
    servers = [SqlPreviewStore(database, columns_sec=0.2) for _ in range(2)]
    [(first, *_), _, (third, *_), *_] = await read_old_columns(database)
    await migration.run(silent)
    for server in servers:
        await sync_once(server, first, "sbx-before")
    await migration.finish(silent)
    for server in servers:
        await sync_once(server, first, "sbx-after")
    rolling_back = asyncio.create_task(migration.rollback(silent))
    number = 0
    while not rolling_back.done():
        number += 1
        await sync_once(servers[number % 2], first, f"sbx-{number}")
    await rolling_back
    assert number > 2
    for server in servers:
        await sync_once(server, third, "sbx-last")
        found = await server.find(first)
        assert found is not None
        assert found.has_sandbox(f"sbx-{number}")
    columns = {row[0]: row[1] for row in await read_old_columns(database)}
    assert (columns[first], columns[third]) == (f"sbx-{number}", "sbx-last")
    assert (await migration.run(silent)).differences == []
    assert (await migration.validate(silent)).differences == []


async def sync_once(store: SqlPreviewStore, project_id: str, sandbox_id: str) -> None:
    """A sandbox of this id is made and recorded; again, if the row changed meanwhile."""
    async for _ in ConflictRetries():
        seen = await store.find(project_id)
        assert seen is not None
        if seen.attempt is None:
            begun = begin_attempt(seen, Attempt("a", MADE), quota=NOBODY, cause=CAUSE)
            if not await store.apply(begun):
                continue
            seen = begun.result
        assert seen.info is not None
        info = replace(seen.info, sandbox_id=sandbox_id, attempt="a", is_estimated=False)
        made = record_sandbox(seen, info, checked_at=MADE, cause=CAUSE)
        assert made is not None
        if await store.apply(made):
            return


async def test_each_step_is_in_the_history(database: Database) -> None:
    """Also where the rows are from before there was a log."""
    empty = sa.text(
        "DELETE FROM previews.previews WHERE sandbox_id IS NULL AND preview_url IS NULL"
    )
    await database.write(lambda connection: connection.execute(empty))
    migration = OldColumns(database, clock=CLOCK, noticed_sec=0)
    store, log = SqlPreviewStore(database), open_log(database)
    await migration.run(silent)
    report = await verify(store, log)
    assert (report.subjects, report.problems) == (PROJECTS * 4 // 5, [])
    await migration.finish(silent)
    await migration.rollback(silent)
    [(project_id, *_), *_] = await read_old_columns(database)
    page = await log.page(EventQuery(subject=project_id), limit=10, cursor=None)
    events = [each.event for each in page.items]
    assert [each.kind for each in events] == ["preview.rolled_back", "preview.migrated"]
    assert [each.sequence for each in events] == [3, 2]
    assert {each.actor for each in events} == {"operator"}
    preview = await SqlPreviewStore(database).find(project_id)
    assert preview is not None
    assert preview.sequence == 3
    assert state_of(preview) == events[0].data == events[1].data
    assert (await verify(SqlPreviewStore(database), log)).problems == []


async def test_both_are_written_and_either_may_be_read(database: Database) -> None:
    await OldColumns(database, clock=CLOCK).run(silent)
    rows = await read_old_columns(database)
    new, old = SqlPreviewStore(database), SqlPreviewStore(database, reads="old")
    project_id = rows[0][0]
    seen = await new.find(project_id)
    assert seen is not None
    assert seen.info is not None
    running = replace(
        seen.info,
        sandbox_id="sbx-new",
        preview_url="https://new",
        end_time=MADE + timedelta(days=1),
        attempt="a",
    )
    begun = begin_attempt(seen, Attempt("a", MADE), quota=NOBODY, cause=CAUSE)
    assert await new.apply(begun)
    made = record_sandbox(begun.result, running, checked_at=MADE, cause=CAUSE)
    assert made is not None
    assert await new.apply(made)
    assert (await read_old_columns(database))[0][1:] == ("sbx-new", "https://new")
    for store in (new, old):
        found = await store.find(project_id)
        assert found is not None
        assert found.info is not None
        assert found.info.sandbox_id == "sbx-new"
    change = sa.text(
        "UPDATE previews.previews SET sandbox_id = 'by-old-code' WHERE project_id = :p"
    )
    await database.write(lambda connection: connection.execute(change, {"p": project_id}))
    by_old = await old.find(project_id)
    by_new = await new.find(project_id)
    assert by_old is not None
    assert by_new is not None
    assert by_old.info is not None
    assert by_new.info is not None
    assert (by_old.info.sandbox_id, by_new.info.sandbox_id) == ("by-old-code", "sbx-new")


async def test_where_only_the_old_columns_are_filled_they_are_read(database: Database) -> None:
    [(project_id, sandbox_id, preview_url), *_] = await read_old_columns(database)
    store = SqlPreviewStore(database)
    preview = await store.find(project_id)
    assert preview is not None
    assert preview.info is not None
    assert (preview.info.sandbox_id, preview.info.preview_url) == (sandbox_id, preview_url)
    soon = MADE + timedelta(minutes=1)
    begun = begin_attempt(preview, Attempt("a", soon), quota=NOBODY, cause=CAUSE)
    assert await store.apply(begun)
    assert (await infos(database))[0] is None, "an attempt changes nothing of it"
    assert (await store.find(project_id)) == begun.after


async def test_rows_with_half_of_the_old_columns_stay_alike_when_they_change(
    database: Database,
) -> None:
    store = SqlPreviewStore(database)
    changed_ids = {f"prj-{number:017}" for number in (2, 3, 4)}
    for project_id in changed_ids:
        preview = await store.find(project_id)
        assert preview is not None
        assert preview.info is not None
        changed = record_files(preview, preview.info.sandbox_id, version=1, cause=CAUSE)
        assert changed is not None
        assert await store.apply(changed)
    report = await OldColumns(database, clock=CLOCK).validate(silent)
    assert report.differences, "those that were not migrated"
    assert not changed_ids & {each.partition(":")[0] for each in report.differences}
