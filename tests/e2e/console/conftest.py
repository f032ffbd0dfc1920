"""One browser, and one server of every part with people on it, for all tests of the console."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Error,
    Page,
    expect,
    sync_playwright,
)

from tests.e2e.console.markup import Marked, make_marked
from tests.e2e.console.people import ADMIN, ANN, open_accounts
from tests.e2e.console.sessions import ConsoleSession, operator_session, session_of
from tests.e2e.console.watching import watch
from tests.support.servers.processes import ServerProcess, csp_simulator, sandyard_serve
from tests.support.services.oidc_issuer import CLIENT_ID, CLIENT_SECRET, OidcIssuer, oidc_issuer

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
]
POOL = 40
QUICK_TO_FAIL = {
    "CSP_MAX_ATTEMPTS": "1",
    "CIRCUIT_BREAKER_THRESHOLD": "3",
    "CIRCUIT_BREAKER_TIMEOUT_SEC": "5",
    "DELETION_RETRY_MAX_ATTEMPTS": "1",
}
"""One failed call is enough for a test of what is then shown."""


@pytest.fixture(scope="package")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with csp_simulator(tmp_path_factory.mktemp("provider"), "--count", str(POOL)) as url:
        yield url


@pytest.fixture(scope="package")
def issuer() -> Iterator[OidcIssuer]:
    with oidc_issuer() as issuer:
        yield issuer


@pytest.fixture(scope="package")
def console(
    tmp_path_factory: pytest.TempPathFactory, provider: str, issuer: OidcIssuer
) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("console")
    secret = folder / "client-secret"
    secret.write_text(CLIENT_SECRET)
    environment = QUICK_TO_FAIL | {
        "CSP_BASE_URL": provider,
        "OIDC_ISSUER": issuer.url,
        "OIDC_CLIENT_ID": CLIENT_ID,
        "OIDC_CLIENT_SECRET": f"file:{secret}",
        "WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
        "CLEANUP_INTERVAL_SEC": "86400",  # what a test has just marked for deletion is still listed
        "QUEUE_TICKET_TTL_SEC": "3600",  # who waits is still shown after a while on a busy machine
    }
    with sandyard_serve(folder / "data", environment=environment) as server:
        open_accounts(server)
        yield server


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One for all pages: most of what a test costs is the processes of a new one."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page of somebody who was never here; the browser must not complain of it, but for answers
    that are errors."""
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
    forget(context)
    assert complaints == []


def forget(context: BrowserContext) -> None:
    """Close the pages, and forget what they have stored."""
    for each in context.pages:
        with suppress(Error):  # a page without an address has no storage
            each.evaluate("localStorage.clear()")
        each.close()
    context.clear_cookies()


@pytest.fixture(scope="package")
def operators_session(console: ServerProcess) -> ConsoleSession:
    return operator_session(console)


@pytest.fixture(scope="package")
def anns_session(console: ServerProcess) -> ConsoleSession:
    return session_of(console, ANN)


@pytest.fixture(scope="package")
def admins_session(console: ServerProcess) -> ConsoleSession:
    return session_of(console, ADMIN)


@pytest.fixture
def operator(page: Page, operators_session: ConsoleSession) -> Page:
    """Of somebody who is logged in with the operator's token, on the first page."""
    return logged_in(page, operators_session)


@pytest.fixture
def ann(page: Page, anns_session: ConsoleSession) -> Page:
    return logged_in(page, anns_session)


@pytest.fixture
def admin(page: Page, admins_session: ConsoleSession) -> Page:
    return logged_in(page, admins_session)


@pytest.fixture(scope="package")
def marked(console: ServerProcess, provider: str, admins_session: ConsoleSession) -> Marked:
    return make_marked(console, provider, admins_session)


@pytest.fixture
def watched(page: Page, admins_session: ConsoleSession) -> Iterator[Page]:
    """An admin's page; every one that is opened has a strict policy."""
    policies = watch(page)
    yield logged_in(page, admins_session)
    assert len(policies) > 1
    for policy in policies:
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def logged_in(page: Page, session: ConsoleSession) -> Page:
    """With the cookie of a login that was made before."""
    name, _, value = session.cookie.partition("=")
    page.context.add_cookies(
        [
            {
                "name": name,
                "value": value,
                "domain": str(urlsplit(session.url).hostname),
                "path": "/",
                "secure": True,
                "httpOnly": True,
                "sameSite": "Lax",
            }
        ]
    )
    page.goto(f"{session.url}/console")
    return page


def log_in(page: Page, console: ServerProcess, name: str, password: str | None = None) -> None:
    page.goto(f"{console.url}/console/login")
    page.get_by_label("E-mail address or user name").fill(name)
    page.get_by_label("Password").fill(password or f"{name} has a password")
    page.get_by_role("button", name="Log in", exact=True).click()


def confirm(page: Page) -> None:
    page.get_by_role("button", name="Go on").click()


def lease(console: ServerProcess, track: str) -> dict[str, str]:
    answer = httpx.post(
        f"{console.url}/v1/allocate", headers=console.track | {"X-Track-ID": track}, timeout=60
    )
    answer.raise_for_status()
    found: dict[str, str] = answer.json()
    return found
