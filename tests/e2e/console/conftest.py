"""A browser, and a server of every part with people on it."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.e2e.console.people import ADMIN, ANN, open_accounts
from tests.servers import ServerProcess, sandyard_serve

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
]


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("console")
    with sandyard_serve(folder / "data") as server:
        open_accounts(server)
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page; the browser must not complain of it, but for answers that are errors."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda said: (
            complaints.append(said.text)
            if said.type in ("error", "warning") and "Failed to load resource" not in said.text
            else None
        ),
    )
    yield page
    context.close()
    assert complaints == []


@pytest.fixture
def operator(page: Page, console: ServerProcess) -> Page:
    """Logged in with the operator's token."""
    page.goto(f"{console.url}/console/login")
    page.get_by_label("Operator token").fill(console.admin["Authorization"].partition(" ")[2])
    page.get_by_role("button", name="Log in as operator").click()
    page.wait_for_url("**/console")
    return page


@pytest.fixture
def ann(page: Page, console: ServerProcess) -> Page:
    log_in(page, console, ANN)
    return page


@pytest.fixture
def admin(page: Page, console: ServerProcess) -> Page:
    log_in(page, console, ADMIN)
    return page


def log_in(page: Page, console: ServerProcess, name: str, password: str | None = None) -> None:
    page.goto(f"{console.url}/console/login")
    page.get_by_label("E-mail address or user name").fill(name)
    page.get_by_label("Password").fill(password or f"{name} has a password")
    page.get_by_role("button", name="Log in", exact=True).click()
