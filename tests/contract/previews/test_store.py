"""The store of previews on each engine: compare-and-set, the quota, files and removal."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandyard.bootstrap.previews import open_log
from sandyard.kit.changes.events import EventQuery
from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.sql.database import Database, open_database
from sandyard.previews.errors import PreviewsLimitError
from sandyard.previews.files import FileChanges
from sandyard.previews.jobs import SweepPreviews
from sandyard.previews.model import (
    Attempt,
    Preview,
    Quota,
    RunningPreviews,
    SandboxInfo,
    abandon_attempt,
    begin_attempt,
    change_files,
    record_sandbox,
    remove,
)
from sandyard.previews.ports import PreviewSandbox
from sandyard.previews.status_model import record_check, report_status
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.previews.stores.tables import previews
from tests.support.clocks import ManualClock
from tests.support.storage.query_plans import plan_of, scanned, sent

NOW = datetime(2027, 1, 15, 12, tzinfo=UTC)
SOON = NOW + timedelta(minutes=1)
LATER = NOW + timedelta(hours=1)
ACCOUNT = "100000000001"
CAUSE = Cause("account:100000000001", int(NOW.timestamp() * 1000))


def project(number: int, account_id: str = ACCOUNT) -> Preview:
    return Preview(f"prj-{number:017}", account_id, NOW)


def attempt(number: int = 0) -> Attempt:
    return Attempt(f"attempt-{number}", SOON)


def sandbox(attempt_id: str) -> SandboxInfo:
    return SandboxInfo(f"sbx-{attempt_id}", "https://x", NOW, SOON, attempt_id)


def begun(
    preview: Preview, attempt: Attempt, *, running: RunningPreviews | None = None, limit: int = 99
) -> Transition[Preview]:
    """An attempt, where nothing else runs unless it is said."""
    seen = running or RunningPreviews(f"of {preview.project_id}", NOW, frozenset())
    return begin_attempt(preview, attempt, quota=Quota(limit, seen), cause=CAUSE)


def made(transition: Transition[Preview], info: SandboxInfo) -> Transition[Preview]:
    recorded = record_sandbox(transition.result, info, checked_at=NOW, cause=CAUSE)
    assert recorded is not None
    return recorded


@pytest.fixture
async def database(database_url: str | None, tmp_path: Path) -> AsyncIterator[Database]:
    database = open_database(database_url, data_dir=tmp_path, part="previews", pool_size=8)
    yield database
    await database.close()


@pytest.fixture
async def stores(
    database: Database, database_url: str | None, tmp_path: Path
) -> AsyncIterator[list[SqlPreviewStore]]:
    """Of two processes on PostgreSQL, of one on SQLite."""
    databases = [database]
    if database_url is not None:
        databases.append(
            open_database(database_url, data_dir=tmp_path, part="previews", pool_size=8)
        )
    yield [SqlPreviewStore(each) for each in databases]
    for each in databases[1:]:
        await each.close()


async def test_of_many_that_decided_from_the_same_one_is_applied(
    stores: list[SqlPreviewStore],
) -> None:
    before: Preview = project(1)
    for _ in range(3):
        changes = [begun(before, attempt(number)) for number in range(20)]
        applied = await asyncio.gather(
            *(stores[n % len(stores)].apply(change) for n, change in enumerate(changes))
        )
        assert sum(applied) == 1
        found = await stores[0].find(before.project_id)
        assert found is not None
        assert found == changes[applied.index(True)].after
        before = found


@pytest.mark.parametrize("limit", [1, 3])
async def test_the_quota_holds_however_many_begin_at_once(
    stores: list[SqlPreviewStore], limit: int
) -> None:
    async def begin(number: int) -> bool:
        store = stores[number % len(stores)]
        while True:
            running = await store.running(ACCOUNT, at=NOW)
            change = begun(project(number), attempt(number), running=running, limit=limit)
            if await store.apply(change):
                return True

    outcomes = await asyncio.gather(*map(begin, range(20)), return_exceptions=True)
    assert outcomes.count(True) == limit
    assert sum(isinstance(each, PreviewsLimitError) for each in outcomes) == 20 - limit
    assert len((await stores[0].running(ACCOUNT, at=NOW)).project_ids) == limit
    other = "100000000002"
    nobody = await stores[0].running(other, at=NOW)
    assert await stores[0].apply(begun(project(99, other), attempt(), running=nobody, limit=1))


async def test_what_was_decided_from_another_number_of_running_previews_is_not_applied(
    stores: list[SqlPreviewStore],
) -> None:
    [store, *_] = stores
    nobody = await store.running(ACCOUNT, at=NOW)
    first = begun(project(1), attempt(1), running=nobody, limit=1)
    assert await store.apply(first)
    assert not await store.apply(begun(project(2), attempt(2), running=nobody, limit=1))
    assert await store.find(project(2).project_id) is None
    one = await store.running(ACCOUNT, at=NOW)
    with pytest.raises(PreviewsLimitError):
        begun(project(2), attempt(2), running=one, limit=1)
    abandoned = abandon_attempt(first.result, "attempt-1", cause=CAUSE)
    assert abandoned is not None
    assert (await store.running(ACCOUNT, at=SOON)).project_ids, "its time is over, but not settled"
    assert await store.apply(abandoned)
    later = await store.running(ACCOUNT, at=SOON)
    assert later.project_ids == frozenset()
    assert await store.apply(begun(project(3), attempt(3), running=later, limit=1))


async def test_files_are_written_with_the_change_or_not_at_all(
    stores: list[SqlPreviewStore],
) -> None:
    [store, *_] = stores
    before = project(1)
    one = FileChanges({"a": b"one", "b": b"two"}, (), NOW)
    lost = FileChanges({"a": b"lost"}, ("b",), NOW)
    assert await store.apply(change_files(before, one, cause=CAUSE), files=one)
    assert not await store.apply(change_files(before, lost, cause=CAUSE), files=lost)
    assert [file.content for file in await store.files(before.project_id)] == [b"one", b"two"]
    assert await store.changes_since("prj-unknown", 0) == ({}, [], 0)


async def test_what_runs_or_is_being_made_is_counted_over_all_accounts(
    stores: list[SqlPreviewStore],
) -> None:
    [store, *_] = stores
    assert await store.count_running(at=NOW) == 0
    for number in range(3):
        begins = begun(project(number), attempt(number))
        assert await store.apply(begins)
    assert await store.apply(made(begins, sandbox("attempt-2")))
    assert await store.count_running(at=NOW) == 3
    running = await store.running(ACCOUNT, at=SOON)
    assert await store.count_running(at=SOON) == len(running.project_ids)


async def test_known_attempts_are_those_under_way_and_those_of_running_sandboxes(
    stores: list[SqlPreviewStore],
) -> None:
    [store, *_] = stores
    for number in range(3):
        begins = begun(project(number), attempt(number))
        assert await store.apply(begins)
        if number == 1:
            assert await store.apply(made(begins, sandbox("attempt-1")))
        if number == 2:
            ended = abandon_attempt(begins.result, "attempt-2", cause=CAUSE)
            assert ended is not None
            assert await store.apply(ended)
    names = [f"attempt-{number}" for number in range(4)]
    assert await store.known_attempts(names, now=NOW) == {"attempt-0", "attempt-1"}
    assert await store.known_attempts(names, now=SOON) == {"attempt-0"}


async def test_pages_go_through_all_or_those_that_run(stores: list[SqlPreviewStore]) -> None:
    [store, *_] = stores
    for number, end_time in enumerate([SOON, NOW, LATER, SOON, NOW, SOON]):
        begins = begun(project(number), attempt(number))
        assert await store.apply(begins)
        info = replace(sandbox(f"attempt-{number}"), end_time=end_time)
        assert await store.apply(made(begins, info))
    assert await store.apply(begun(project(6), attempt(6)))
    all_of_them: list[str] = []
    while page := await store.page(after=all_of_them[-1] if all_of_them else "", limit=2):
        all_of_them += [each.project_id for each in page]
    assert all_of_them == [project(number).project_id for number in range(7)]
    assert await running(store, limit=2) == [project(n).project_id for n in (0, 3, 5, 2, 6)]
    assert await running(store, limit=5) == await running(store, limit=9)


async def running(store: SqlPreviewStore, *, limit: int) -> list[str]:
    found, page_key = await store.page_of_running(NOW, after=None, limit=limit)
    ids = [each.project_id for each in found]
    while page_key is not None:
        found, page_key = await store.page_of_running(NOW, after=page_key, limit=limit)
        ids += [each.project_id for each in found]
    return ids


class Held:
    """A machine with these previews on it."""

    def __init__(self, *running: PreviewSandbox) -> None:
        self._running = running
        self.killed: list[str] = []

    async def clear_ended(self) -> int:
        return 0

    async def running(self) -> Sequence[PreviewSandbox]:
        return self._running

    async def kill(self, sandbox_id: str) -> None:
        self.killed.append(sandbox_id)


async def test_a_sweep_reads_no_preview_that_does_not_run(database: Database) -> None:
    store = SqlPreviewStore(database)
    await store.find("any")  # so that what it asks once is asked
    await add_previews(database, 3000, runs=lambda number: number % 1000 == 0)
    known, nobodys = (PreviewSandbox(f"sbx-{n}", "https://x", NOW, LATER, n) for n in ("0", "?"))
    held = Held(known, nobodys)
    clock = ManualClock(SOON.timestamp() + 300)
    with sent("previews.previews") as statements:
        report = await SweepPreviews(held, store, clock=clock).run()
        assert len(await running(store, limit=2)) == 3
    assert (report.ended, held.killed) == (1, ["sbx-?"])
    assert len(statements) == 3, "the sweep, and two pages of those that run"
    for each in statements:
        plan = await plan_of(database, each)
        assert "previews_running" in plan, plan
        assert "previews" not in scanned(plan), plan


async def add_previews(database: Database, count: int, *, runs: Callable[[int], bool]) -> None:
    """The attempt that made each is its number."""
    rows = [
        {
            "project_id": project(number).project_id,
            "account_id": ACCOUNT,
            "created_at": NOW,
            "running_until": LATER if runs(number) else NOW,
            "sandbox_info": replace(sandbox(str(number)), end_time=LATER).as_json(),
            "files_version": 0,
            "sequence": 1,
        }
        for number in range(count)
    ]
    await database.write(lambda connection: connection.execute(previews.insert(), rows))


async def test_a_preview_that_changed_since_is_not_removed(stores: list[SqlPreviewStore]) -> None:
    [store, *_] = stores
    files = FileChanges({"a": b"one"}, (), NOW)
    first = change_files(project(1), files, cause=CAUSE)
    assert await store.apply(first, files=files)
    second = begun(first.result, attempt())
    assert await store.apply(second)
    project_id = first.result.project_id
    assert not await store.apply(remove(first.result, cause=CAUSE))
    assert len(await store.files(project_id)) == 1
    assert await store.apply(remove(second.result, cause=CAUSE))
    assert await store.find(project_id) is None
    assert await store.files(project_id) == []


async def test_a_preview_that_came_again_is_not_the_one_before(
    stores: list[SqlPreviewStore],
) -> None:
    [store, *_] = stores
    first = begun(project(1), attempt())
    assert await store.apply(first)
    assert await store.apply(remove(first.result, cause=CAUSE))
    later = Cause(CAUSE.actor, CAUSE.at_ms + 60_000)
    files = FileChanges({"a": b"one"}, (), SOON)
    again = change_files(project(1), files, cause=later)
    assert await store.apply(again, files=files)
    assert not await store.apply(made(first, sandbox("attempt-0")))
    assert await store.find(project(1).project_id) == again.after


async def test_when_the_provider_last_told_never_moves_back_and_changes_nothing_else(
    stores: list[SqlPreviewStore],
) -> None:
    [store, *_] = stores
    begins = begun(project(1), attempt())
    assert await store.apply(begins)
    recorded = made(begins, sandbox("attempt-0"))
    assert await store.apply(recorded)
    preview = recorded.result
    await store.touch(preview, last_checked=SOON)
    await store.touch(preview, last_checked=NOW)
    await store.touch(begins.result, last_checked=SOON + timedelta(hours=1))
    assert await store.find(preview.project_id) == replace(preview, last_checked=SOON)
    ended = record_check(preview, report_status(preview, None, now=NOW), cause=CAUSE)
    assert ended is not None
    assert await store.apply(ended), "a touch is no change that others lose to"
    found = await store.find(preview.project_id)
    assert found == replace(ended.result, last_checked=SOON)


async def test_events_are_written_with_the_change_or_not_at_all(
    stores: list[SqlPreviewStore], database: Database
) -> None:
    [store, *_] = stores
    log = open_log(database)
    begins = begun(project(1), attempt())
    assert await store.apply(begins)
    assert not await store.apply(begins)
    assert await store.apply(remove(begins.result, cause=CAUSE))
    page = await log.page(EventQuery(account_id=ACCOUNT), limit=10, cursor=None)
    told = [(each.event.kind, each.event.sequence) for each in page.items]
    first = begins.result.sequence
    assert told == [("preview.removed", first + 1), ("preview.requested", first)]
