"""A browser and a preview server for the tests of the component."""

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect
from playwright.sync_api import Page, sync_playwright
from playwright.sync_api import expect as expect_now

from tests.e2e.previews.tab import ARGUMENTS, HALF_HOUR, MINUTE, PROJECT, VISIBILITY, Tab
from tests.support.previews.page_server import START, PreviewServer, Project, preview_page_server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    expect.set_options(timeout=30_000)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def only_server() -> AsyncIterator[PreviewServer]:
    async with preview_page_server() as server:
        yield server


@pytest.fixture
def server(only_server: PreviewServer) -> Iterator[PreviewServer]:
    only_server.now = START
    only_server.projects.clear()
    yield only_server
    only_server.release()


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: Browser, server: PreviewServer) -> AsyncIterator[Tab]:
    """On an empty page; it must end without a complaint, but for answers that are errors."""
    context = await browser.new_context(viewport={"width": 1100, "height": 700})
    tab = Tab(await context.new_page(), server)
    tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.page.on(
        "console",
        lambda said: (
            tab.complaints.append(said.text)
            if said.type in ("error", "warning") and "Failed to load resource" not in said.text
            else None
        ),
    )
    await tab.page.add_init_script(VISIBILITY)
    await tab.page.clock.install(time=START - MINUTE)
    await tab.page.goto(f"{server.url}/bare")
    await tab.page.clock.pause_at(START)
    yield tab
    await context.close()
    assert tab.complaints == []


@pytest.fixture
def running(server: PreviewServer) -> Project:
    return server.add(PROJECT, runs_for=HALF_HOUR)


@contextmanager
def browser_page() -> Iterator[Page]:
    expect_now.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        yield browser.new_page()
        browser.close()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser_page() as page:
        yield page
