"""Archives of a running program's files, for others to begin with, on every runtime."""

from dataclasses import replace

import pytest

from sandyard.runtime.errors import NotRunningError, RunNotFoundError, SnapshotNotFoundError
from sandyard.runtime.ports import Runtime
from tests.support.runtime.programs import LIMITS, STATIC, new_run_id
from tests.support.runtime.sessions import pieces, read_all


async def test_another_begins_with_the_files_as_they_were(runtime: Runtime) -> None:
    first, second = new_run_id(), new_run_id()
    await runtime.start(first, STATIC, LIMITS)
    session = await runtime.session(first)
    await session.files.write("deep/kept", pieces(b"before"), mode=0o755)
    saved = await runtime.save_archive(first, "one")
    assert [each.id for each in await runtime.list_archives()] == ["one"]
    assert saved.size_bytes > 0
    await session.files.write("deep/kept", pieces(b"after"))
    await runtime.start(second, replace(STATIC, archive_id="one"), LIMITS)
    other = await runtime.session(second)
    assert await read_all(other, "deep/kept") == b"before"
    assert (await other.files.stat("deep/kept")).mode == 0o755
    assert await read_all(session, "deep/kept") == b"after", "the first goes on"
    for run_id in (first, second):
        await runtime.stop(run_id)
    with pytest.raises(NotRunningError):
        await runtime.save_archive(first, "two")
    for _ in range(2):
        await runtime.delete_archive("one")
    assert await runtime.list_archives() == []


async def test_what_is_not_there_is_told_before_anything_is_made(runtime: Runtime) -> None:
    run_id = new_run_id()
    for archive_id in ("missing", "../outside", ""):
        with pytest.raises(SnapshotNotFoundError):
            await runtime.start(run_id, replace(STATIC, archive_id=archive_id), LIMITS)
        assert await runtime.refresh(run_id) is None
    with pytest.raises((RunNotFoundError, NotRunningError)):
        await runtime.save_archive(run_id, "one")
