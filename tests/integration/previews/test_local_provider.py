"""Previews on the local runtime: real processes, real pages, real ends."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from sandyard.bootstrap.preview_provider import LocalPreviewProvider
from sandyard.platform.runtime.errors import FilesTooLargeError, UnsafePathError
from sandyard.platform.runtime.local.runtime import LocalRuntime
from sandyard.platform.runtime.local.specs import LocalPolicy
from sandyard.platform.runtime.model import Owner
from sandyard.previews.providers.errors import ProviderTroubleError, SandboxGoneError
from sandyard.previews.providers.ports import PreviewProvider, PreviewSandbox
from tests.integration.runtime.programs import LIMITS, STATIC, clear, end_all
from tests.sandboxes import page_at

HOUR = timedelta(hours=1)
PAGE = {"index.html": b"<h1>one</h1>"}


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "runtime")
    yield runtime
    await end_all(runtime)


@pytest.fixture
def provider(runtime: LocalRuntime) -> LocalPreviewProvider:
    return LocalPreviewProvider(runtime, LIMITS)


async def create(
    provider: PreviewProvider,
    attempt: str = "first",
    files: dict[str, bytes] = PAGE,
    *,
    project_id: str = "prj-a",
    ttl: timedelta = HOUR,
) -> PreviewSandbox:
    return await provider.create(project_id=project_id, attempt=attempt, files=files, ttl=ttl)


async def until_gone(provider: PreviewProvider, sandbox_id: str) -> None:
    async with asyncio.timeout(15):
        while True:
            try:
                await provider.get(sandbox_id)
            except SandboxGoneError:
                return
            await asyncio.sleep(0.05)


async def test_a_new_sandbox_shows_the_files_and_knows_its_times(
    provider: LocalPreviewProvider,
) -> None:
    before = datetime.now(UTC)
    made = await create(provider, files=PAGE | {"deep/er/ü b.bin": b"\0\xff"}, ttl=HOUR)
    assert made.attempt == "first"
    assert before <= made.start_time <= datetime.now(UTC)
    assert made.end_time - made.start_time == HOUR
    assert (await page_at(made.preview_url)).content == b"<h1>one</h1>"
    assert (await page_at(made.preview_url, "/deep/er/%C3%BC%20b.bin")).content == b"\0\xff"
    assert await provider.get(made.sandbox_id) == made


async def test_texts_are_utf_8_and_nothing_is_kept_by_a_browser(
    provider: LocalPreviewProvider,
) -> None:
    files = {"index.html": "Grüße ✓".encode(), "app.js": b"1", "photo.png": b"\x89PNG"}
    made = await create(provider, files=files)
    pages = [await page_at(made.preview_url, path) for path in ("/", "/app.js", "/photo.png")]
    assert pages[0].text == "Grüße ✓"
    kinds = [page.headers["Content-Type"] for page in pages]
    assert kinds == ["text/html; charset=utf-8", "text/javascript; charset=utf-8", "image/png"]
    assert {page.headers["Cache-Control"] for page in pages} == {"no-store"}


async def test_files_are_written_and_deleted_while_it_runs(provider: LocalPreviewProvider) -> None:
    made = await create(provider, files=PAGE | {"old.html": b"old", "folder/page.html": b"x"})
    await provider.write_files(
        made.sandbox_id,
        written={"index.html": b"<h1>two</h1>", "folder": b"a file now", "new/page.html": b"new"},
        deleted=["old.html", "folder/page.html", "never-was.html"],
    )
    shown = {
        path: (await page_at(made.preview_url, path)).content
        for path in ("/", "/folder", "/new/page.html")
    }
    assert shown == {"/": b"<h1>two</h1>", "/folder": b"a file now", "/new/page.html": b"new"}
    assert (await page_at(made.preview_url, "/old.html")).status_code == 404
    assert await provider.get(made.sandbox_id) == made


async def test_all_files_can_go_and_come_back(provider: LocalPreviewProvider) -> None:
    made = await create(provider, files={})
    assert (await page_at(made.preview_url, "/index.html")).status_code == 404
    await provider.write_files(made.sandbox_id, written=PAGE, deleted=[])
    await provider.write_files(made.sandbox_id, written={}, deleted=list(PAGE))
    assert (await page_at(made.preview_url, "/index.html")).status_code == 404
    await provider.write_files(made.sandbox_id, written=PAGE, deleted=[])
    assert (await page_at(made.preview_url)).content == b"<h1>one</h1>"


async def test_a_procfile_is_a_file_like_any_other(provider: LocalPreviewProvider) -> None:
    made = await create(provider, files=PAGE | {"Procfile": b"web: exit 1\n"})
    assert (await page_at(made.preview_url)).content == b"<h1>one</h1>"
    assert (await page_at(made.preview_url, "/Procfile")).content == b"web: exit 1\n"


async def test_paths_that_lead_out_and_files_that_are_too_large_are_refused(
    provider: LocalPreviewProvider,
) -> None:
    made = await create(provider)
    for path in ("../Procfile", "/etc/x", "a/../../x", "a\0b", ""):
        with pytest.raises(UnsafePathError):
            await provider.write_files(made.sandbox_id, written={path: b"x"}, deleted=[])
        with pytest.raises(UnsafePathError):
            await provider.write_files(made.sandbox_id, written={}, deleted=[path])
        with pytest.raises(UnsafePathError):
            await create(provider, "second", {path: b"x"})
    with pytest.raises(FilesTooLargeError):
        await create(provider, "second", {"large": bytes(LIMITS.storage_bytes + 1)})
    assert await provider.find_attempt(project_id="prj-a", attempt="second") is None


async def test_an_attempt_is_found_again_and_told_from_others(
    provider: LocalPreviewProvider, tmp_path: Path
) -> None:
    first, second = await create(provider, "first"), await create(provider, "second")
    restarted = LocalPreviewProvider(LocalRuntime(tmp_path / "runtime"), LIMITS)
    assert first.sandbox_id != second.sandbox_id
    for made in (first, second):
        found = await restarted.find_attempt(project_id="prj-a", attempt=made.attempt)
        assert found == made
    assert await restarted.find_attempt(project_id="prj-a", attempt="third") is None
    assert await restarted.find_attempt(project_id="prj-b", attempt="first") is None


async def test_one_that_is_still_starting_is_waited_for(provider: LocalPreviewProvider) -> None:
    making = asyncio.create_task(create(provider))
    found = None
    async with asyncio.timeout(15):
        while found is None:
            found = await provider.find_attempt(project_id="prj-a", attempt="first")
            await asyncio.sleep(0)
    assert found == await making


async def test_calls_at_once_for_one_attempt_make_one(
    provider: LocalPreviewProvider, runtime: LocalRuntime
) -> None:
    made = await asyncio.gather(*(create(provider) for _ in range(5)))
    assert len(set(made)) == 1
    assert len(await runtime.list_held("preview")) == 1


async def test_at_the_end_of_its_time_it_is_gone(provider: LocalPreviewProvider) -> None:
    made = await create(provider, ttl=timedelta(seconds=2))
    await until_gone(provider, made.sandbox_id)
    assert abs((datetime.now(UTC) - made.end_time).total_seconds()) < 3
    with pytest.raises(httpx.TransportError):
        await page_at(made.preview_url)
    with pytest.raises(SandboxGoneError):
        await provider.write_files(made.sandbox_id, written=PAGE, deleted=[])
    with pytest.raises(SandboxGoneError):
        await provider.extend(made.sandbox_id, ttl=HOUR)
    assert await provider.find_attempt(project_id="prj-a", attempt="first") is None


async def test_its_time_can_be_made_longer_and_shorter(provider: LocalPreviewProvider) -> None:
    made = await create(provider, ttl=timedelta(seconds=4))
    await provider.extend(made.sandbox_id, ttl=HOUR)
    longer = await provider.get(made.sandbox_id)
    assert abs(longer.end_time - datetime.now(UTC) - HOUR) < timedelta(seconds=2)
    await asyncio.sleep(4.5)
    assert (await page_at(made.preview_url)).is_success
    await provider.extend(made.sandbox_id, ttl=timedelta(0))
    await until_gone(provider, made.sandbox_id)


async def test_a_killed_one_is_gone_however_often_it_is_killed(
    provider: LocalPreviewProvider, runtime: LocalRuntime
) -> None:
    made, other = await create(provider), await create(provider, project_id="prj-b")
    await asyncio.gather(*(provider.kill(made.sandbox_id) for _ in range(3)))
    await provider.kill(made.sandbox_id)
    with pytest.raises(SandboxGoneError):
        await provider.get(made.sandbox_id)
    with pytest.raises(httpx.TransportError):
        await page_at(made.preview_url)
    assert await provider.get(other.sandbox_id) == other
    assert [snapshot.id for snapshot in await runtime.list_snapshots()] == []


@pytest.mark.parametrize(
    "sandbox_id", ["prj-a.never", "i8f3k2l1abc", "", "..", "a.b.c", "a/../b.c"]
)
async def test_what_was_never_made_here_is_gone(
    provider: LocalPreviewProvider, sandbox_id: str
) -> None:
    for question in (
        provider.get(sandbox_id),
        provider.extend(sandbox_id, ttl=HOUR),
        provider.write_files(sandbox_id, written=PAGE, deleted=[]),
    ):
        with pytest.raises(SandboxGoneError):
            await question
    await provider.kill(sandbox_id)


async def test_what_ended_by_itself_is_cleared_and_the_rest_is_not(
    provider: LocalPreviewProvider, runtime: LocalRuntime
) -> None:
    sandbox = Owner("sandbox", "box", "a")
    await runtime.start(sandbox, STATIC, LIMITS)
    await runtime.stop(sandbox)
    short, long = await create(provider, ttl=timedelta(seconds=1)), await create(provider, "second")
    await until_gone(provider, short.sandbox_id)
    async with asyncio.timeout(15):
        while await provider.clear_ended() == 0:
            await asyncio.sleep(0.05)
    assert [held.owner.attempt for held in await runtime.list_held("preview")] == ["second"]
    assert await provider.get(long.sandbox_id) == long
    assert [snapshot.id for snapshot in await runtime.list_snapshots()] == [str(sandbox)]
    await clear(runtime, sandbox)


async def test_a_runtime_that_can_not_start_anything_is_trouble(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path / "runtime", LocalPolicy(listen_timeout_sec=0))
    provider = LocalPreviewProvider(runtime, LIMITS)
    with pytest.raises(ProviderTroubleError) as trouble:
        await create(provider)
    assert trouble.value.reason is not None
    assert trouble.value.reason.startswith("NOT_LISTENING")
    assert await runtime.list_held("preview") == []


async def test_a_folder_that_can_not_be_written_is_trouble(tmp_path: Path) -> None:
    (tmp_path / "runtime").write_text("in the way")
    provider = LocalPreviewProvider(LocalRuntime(tmp_path / "runtime"), LIMITS)
    with pytest.raises(ProviderTroubleError):
        await create(provider)
