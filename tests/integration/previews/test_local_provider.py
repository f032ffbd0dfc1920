"""Previews on this machine, besides what every provider promises."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from httpx import TransportError

from sandyard.previews.errors import ProviderTroubleError
from sandyard.previews.ports import Application, PreviewSandbox
from sandyard.previews.providers.local import LocalPreviewProvider
from sandyard.runtime.errors import FilesTooLargeError, UnsafePathError
from sandyard.runtime.model import RunId
from tests.support.previews.providers import (
    PAGE,
    create,
    local_provider,
    page_of_preview,
    until_gone,
)
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, MEGABYTE, STATIC, clear, end_all


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "runtime")
    yield runtime
    await end_all(runtime)


@pytest.fixture
def provider(runtime: LocalRuntime) -> LocalPreviewProvider:
    return local_provider(runtime)


async def test_texts_are_utf_8_and_nothing_is_kept_by_a_browser(
    provider: LocalPreviewProvider,
) -> None:
    files = {"index.html": "Grüße ✓".encode(), "app.js": b"1", "photo.png": b"\x89PNG"}
    made = await create(provider, files=files)
    pages = [await page_of_preview(provider, made, path) for path in ("/", "/app.js", "/photo.png")]
    assert pages[0].text == "Grüße ✓"
    kinds = [page.headers["Content-Type"] for page in pages]
    assert kinds == ["text/html; charset=utf-8", "text/javascript; charset=utf-8", "image/png"]
    assert {page.headers["Cache-Control"] for page in pages} == {"no-store"}


async def test_static_drafts_have_the_fallback_and_the_404_page_of_published_ones(
    provider: LocalPreviewProvider,
) -> None:
    made = await create(provider, files={"index.html": b"start", "about.html": b"about"})

    async def shown(path: str) -> tuple[int, str]:
        page = await page_of_preview(provider, made, path)
        return page.status_code, page.text

    assert await shown("/about") == (200, "about")
    status, text = await shown("/users/7")
    assert (status, "Not found" in text) == (404, True)
    written = {"404.html": b"our own", "200.html": b"app"}
    await provider.write_files(made.sandbox_id, written=written, deleted=[])
    assert await shown("/users/7?tab=1") == (200, "app")
    assert await shown("/missing.js") == (404, "our own")


async def phase_of(provider: LocalPreviewProvider, made: PreviewSandbox, phase: str) -> Application:
    """Waits for it."""
    async with asyncio.timeout(60):
        while True:
            found = await provider.application(made.sandbox_id)
            if found is not None and found.phase == phase:
                return found
            await asyncio.sleep(0.05)


async def until_page(
    provider: LocalPreviewProvider, made: PreviewSandbox, path: str, is_new: Callable[[str], bool]
) -> None:
    """A development server that is ended meanwhile answers nothing."""
    async with asyncio.timeout(60):
        while True:
            with suppress(TransportError):
                page = await page_of_preview(provider, made, path)
                if page.status_code == 200 and is_new(page.text):
                    return
            await asyncio.sleep(0.05)


async def test_an_application_that_fails_says_why_and_runs_once_it_is_mended(
    provider: LocalPreviewProvider,
) -> None:
    broken = {"Procfile": b"web: echo broken; exit 3\n"}
    made = await create(provider, files=PAGE | broken)
    failed = await phase_of(provider, made, "failed")
    assert (failed.kind, failed.exit_code) == ("procfile", 3)
    assert "broken" in failed.last_lines
    page = await page_of_preview(provider, made)
    assert (page.status_code, page.headers["Retry-After"]) == (503, "1")
    assert "does not run" in page.text
    assert "broken" in page.text

    serve = b"web: exec python3 -m http.server --bind 127.0.0.1 $PORT\n"
    await provider.write_files(made.sandbox_id, written={"Procfile": serve}, deleted=[])
    await phase_of(provider, made, "running")
    assert (await page_of_preview(provider, made)).content == b"<h1>one</h1>"
    edited = {"index.html": b"<h1>two</h1>"}
    await provider.write_files(made.sandbox_id, written=edited, deleted=["Procfile"])
    assert (await phase_of(provider, made, "running")).kind in ("procfile", "static")
    await until_page(provider, made, "/", lambda text: text == "<h1>two</h1>")
    assert any("broken" in line for line in await provider.log(made.sandbox_id, lines=50))


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


async def test_one_that_is_still_starting_is_waited_for(provider: LocalPreviewProvider) -> None:
    making = asyncio.create_task(create(provider))
    found = None
    async with asyncio.timeout(15):
        while found is None:
            found = await provider.find_attempt(project_id="prj-a", attempt="first")
            await asyncio.sleep(0)
    made = await making
    # Its time begins when it serves, which one of the two may have seen a moment before the other.
    assert found == replace(made, end_time=found.end_time)
    assert made.end_time - timedelta(seconds=15) < found.end_time <= made.end_time


async def test_calls_at_once_for_one_attempt_make_one(
    provider: LocalPreviewProvider, runtime: LocalRuntime
) -> None:
    made = await asyncio.gather(*(create(provider) for _ in range(5)))
    assert len(set(made)) == 1
    assert len(await runtime.list_runs("preview")) == 1


async def test_of_a_killed_one_nothing_is_kept(
    provider: LocalPreviewProvider, runtime: LocalRuntime
) -> None:
    made = await create(provider)
    await asyncio.gather(*(provider.kill(made.sandbox_id) for _ in range(3)))
    assert await runtime.list_runs("preview") == []
    assert await runtime.list_snapshots() == []


async def test_what_ended_by_itself_is_cleared_and_the_rest_is_not(
    provider: LocalPreviewProvider, runtime: LocalRuntime
) -> None:
    sandbox = RunId("sandbox", "box", "a")
    await runtime.start(sandbox, STATIC, LIMITS)
    await runtime.stop(sandbox)
    short, long = await create(provider, ttl=timedelta(seconds=1)), await create(provider, "second")
    await until_gone(provider, short.sandbox_id)
    async with asyncio.timeout(15):
        while await provider.clear_ended() == 0:
            await asyncio.sleep(0.05)
    assert [held.run_id.attempt for held in await runtime.list_runs("preview")] == ["second"]
    assert await provider.get(long.sandbox_id) == long
    assert [snapshot.id for snapshot in await runtime.list_snapshots()] == [str(sandbox)]
    await clear(runtime, sandbox)


async def test_a_runtime_that_can_not_start_anything_is_trouble(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path / "runtime")
    provider = local_provider(runtime, limits=replace(LIMITS, memory_bytes=2 * MEGABYTE))
    with pytest.raises(ProviderTroubleError) as trouble:
        await create(provider)
    assert trouble.value.reason is not None
    assert trouble.value.reason.startswith(("EXITED_AT_ONCE", "OVER_LIMIT_AT_START"))
    assert await runtime.list_runs("preview") == []


async def test_a_broken_record_of_a_preview_does_not_stop_the_jobs_for_the_others(
    runtime: LocalRuntime, provider: LocalPreviewProvider
) -> None:
    broken, ended = [await create(provider, name) for name in ("broken", "ended")]
    run_ids = [RunId("preview", *each.sandbox_id.split(".")) for each in (broken, ended)]
    record = runtime.folder_of(run_ids[0]).path / "running.json"
    content = record.read_text()
    record.write_text("{")
    try:
        await runtime.stop(run_ids[1])
        assert await provider.clear_ended() == 1
        assert await provider.running() == []
    finally:
        record.write_text(content)
    assert [each.sandbox_id for each in await provider.running()] == [broken.sandbox_id]


MARK = "mkdir -p node_modules; sleep 0.5; cat /proc/sys/kernel/random/uuid >node_modules/installed"
MARKED = {"scripts": {"preinstall": MARK}}
INSTALLING = {
    "Procfile": b"web: exec python3 -m http.server --bind 127.0.0.1 $PORT\n",
    "package.json": json.dumps(MARKED).encode(),
}


async def test_the_next_preview_of_a_project_has_its_packages_and_nothing_else_of_the_last(
    provider: LocalPreviewProvider, runtime: LocalRuntime
) -> None:
    first = await create(provider, files=INSTALLING | {"old.html": b"old", "a/b.html": b"b"})
    await phase_of(provider, first, "running")
    async with asyncio.timeout(60):
        while not await runtime.list_archives():
            await asyncio.sleep(0.05)
    installed = (await page_of_preview(provider, first, "/node_modules/installed")).text
    await provider.kill(first.sandbox_id)
    other = await create(provider, project_id="prj-b")
    second = await create(provider, "second", files=INSTALLING | PAGE)
    await phase_of(provider, second, "running")
    pages = {
        path: await page_of_preview(provider, second, path) for path in ("/", "/old.html", "/a/")
    }
    assert [page.status_code for page in pages.values()] == [200, 404, 404]
    assert (await page_of_preview(provider, second, "/node_modules/installed")).text == installed
    again = {"package.json": json.dumps(MARKED | {"version": "2.0.0"}).encode()}
    await provider.write_files(second.sandbox_id, written=again, deleted=[])
    await until_page(provider, second, "/node_modules/installed", lambda text: text != installed)
    assert (await page_of_preview(provider, other)).content == b"<h1>one</h1>"
    await provider.close()


async def test_packages_of_many_projects_are_limited(
    provider: LocalPreviewProvider, runtime: LocalRuntime
) -> None:
    """They count in no quota: those that were not used for the longest go."""
    provider.packages_bytes = 1
    made = await create(provider, files=INSTALLING)
    [saving] = provider._savings.values()
    await saving
    assert await runtime.list_archives() == []
    await phase_of(provider, made, "running")


async def test_a_warm_start_that_broke_off_is_completed_by_the_next_sync(
    provider: LocalPreviewProvider, runtime: LocalRuntime
) -> None:
    made = await create(provider)
    await runtime.stop_program(RunId("preview", *made.sandbox_id.split(".")))
    await provider.write_files(made.sandbox_id, written=PAGE, deleted=[])
    assert (await page_of_preview(provider, made)).content == b"<h1>one</h1>"


@pytest.mark.parametrize("script", ["sleep 600", "while :; do echo more; sleep 0.05; done"])
async def test_an_installation_that_does_not_end_is_ended_at_its_limit(
    runtime: LocalRuntime, script: str
) -> None:
    provider = local_provider(runtime)
    provider.install_sec = 3
    hanging = {"package.json": json.dumps({"scripts": {"preinstall": script}}).encode()}
    made = await create(provider, files=INSTALLING | hanging)
    page = await page_of_preview(provider, made)
    assert (page.status_code, "Installing packages" in page.text) == (503, True)
    failed = await phase_of(provider, made, "failed")
    assert failed.last_lines[-1] == "preview: the installation took longer than 3 s"
    assert "took longer" in (await page_of_preview(provider, made)).text
    names = runtime.processes_of(RunId("preview", *made.sandbox_id.split("."))).values()
    assert not {"sleep", "npm install"} & set(names)
    mended = {"package.json": b"{}"}
    await provider.write_files(made.sandbox_id, written=mended, deleted=[])
    await phase_of(provider, made, "running")


@pytest.mark.parametrize("script", ["head -c 1G /dev/zero >file", "yes | split -b 1M"])
async def test_an_installation_that_fills_its_disk_says_so(
    runtime: LocalRuntime, script: str
) -> None:
    provider = local_provider(runtime, limits=replace(LIMITS, storage_bytes=64 * MEGABYTE))
    filling = {"package.json": json.dumps({"scripts": {"preinstall": script}}).encode()}
    made = await create(provider, files=INSTALLING | filling)
    failed = await phase_of(provider, made, "failed")
    assert failed.exit_code
    assert failed.last_lines[-1].endswith("the preview's storage is full")
    assert "storage is full" in (await page_of_preview(provider, made)).text
