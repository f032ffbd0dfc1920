"""Whatever others name, write or print is shown as it is: nothing of it runs on any screen."""

import json
import time
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, Response, expect

from tests.e2e.console.conftest import log_in
from tests.e2e.console.people import ADMIN, open_accounts
from tests.e2e.console.readings import HARDWARE_ID, send_reading
from tests.e2e.console.sessions import ConsoleSession, session_of
from tests.servers import ServerProcess, csp_simulator, sandyard_serve

RUN = "window.ran=1"
TAGS = f"<img src=x onerror={RUN}><script>{RUN}</script>"
QUOTES = f"\"'><svg onload={RUN}>"
NAME = QUOTES + TAGS
TEMPLATE = "{{7*191}}${7*191}"
FILE = f"<img src=x onerror={RUN}>'\"`{TEMPLATE}.txt"
URL = f"http://127.0.0.1:9/{QUOTES}{TAGS}".replace(" ", "%20")
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose provider names sandboxes so, too."""
    folder = tmp_path_factory.mktemp("scripts")
    with csp_simulator(folder, "--count", "2") as provider:
        httpx.post(f"{provider}/api/sandbox", json={"name": NAME}).raise_for_status()
        settings = {"CSP_BASE_URL": provider}
        with sandyard_serve(folder / "data", environment=settings) as server:
            open_accounts(server)
            yield server


@pytest.fixture(scope="module")
def ada(console: ServerProcess) -> ConsoleSession:
    return session_of(console, ADMIN)


@pytest.fixture(scope="module")
def pool(console: ServerProcess) -> str:
    """The id of the leased sandbox that the provider named so; the pool is full of such words."""
    wanted = {"X-Sandbox-Name-Prefix": NAME[:20], "X-Track-ID": "t"}
    track = console.track | wanted | {"X-Instruqt-Track-ID": NAME}
    leased = httpx.post(f"{console.url}/v1/allocate", headers=track).raise_for_status().json()
    waiting = console.track | {"X-Sandbox-Name-Prefix": NAME, "X-Track-ID": "late"}
    httpx.post(f"{console.url}/v1/queue", headers=waiting).raise_for_status()
    with httpx.Client(base_url=f"{console.url}/v1/admin", headers=console.admin) as admin:
        kept = {"count": 1, "track_prefix": "a", "note": NAME, "to": int(time.time()) + 3600}
        admin.post("/reservations", json=kept).raise_for_status()
        admin.post("/webhooks", json={"url": URL, "note": NAME}).raise_for_status()
        free = admin.get("/sandboxes", params={"status": "available"}).json()["sandboxes"]
        reason = {"reason": NAME}
        admin.post(f"/sandboxes/{free[0]['sandbox_id']}/quarantine", json=reason).raise_for_status()
    return str(leased["sandbox_id"])


@pytest.fixture(scope="module")
def device(console: ServerProcess) -> str:
    telemetry = f"{console.url}/telemetry/v1"
    made = httpx.post(
        f"{telemetry}/api-keys", json={"description": NAME}, headers=console.operator
    ).json()
    send_reading(console, made["api_key"], NAME[:64])
    return HARDWARE_ID


@pytest.fixture(scope="module")
def project(ada: ConsoleSession) -> str:
    ada.call("PATCH", "/api/v1/me", {"full_name": NAME})
    ada.call("POST", "/api/v1/api-keys", {"name": NAME[:100], "scope": "read"})
    ada.call("POST", "/api/v1/admin/notifications", {"title": NAME[:100], "message": NAME})
    made = ada.call("POST", "/api/v1/projects", {"name": NAME[:100]}).json()["project_id"]
    page = {"path": "a&b.html", "content": f"</textarea>{NAME}", "encoding": "utf-8"}
    ada.call("PUT", f"/api/v1/projects/{made}/files", {"files": [page], "expected_version": 0})
    return str(made)


@pytest.fixture(scope="module")
def sandbox(ada: ConsoleSession, project: str) -> str:
    """One that runs, with such names in its files, variables and log."""
    found = ada.call("GET", "/api/v1/templates?visibility=official&q=static").json()
    body = {"name": NAME[:100], "template_id": found["templates"][0]["template_id"]}
    made = ada.call("POST", "/api/v1/sandboxes", body | {"project_id": project}).json()
    path = f"/api/v1/sandboxes/{made['sandbox_id']}"
    ada.call("PUT", f"{path}/env/MARKUP", {"value": NAME})
    ada.call("POST", f"{path}/start")
    ada.call("PUT", f"{path}/files?path={quote('/workspace/' + FILE, safe='')}", NAME)
    return str(made["sandbox_id"])


@pytest.fixture
def ada_page(page: Page, console: ServerProcess) -> Page:
    page.add_init_script(WATCH)
    page.on("response", check_policy)
    log_in(page, console, ADMIN)
    page.get_by_role("heading", name="Overview").wait_for()
    return page


def check_policy(answer: Response) -> None:
    if "text/html" in answer.headers.get("content-type", ""):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_nothing_runs_on_any_screen(
    ada_page: Page, console: ServerProcess, pool: str, device: str, project: str, sandbox: str
) -> None:
    box, lab = f"/console/sandboxes/{sandbox}", "/console/labs"
    shown = {
        "/console": NAME[:64],
        lab: NAME,
        f"{lab}?status=stale&name={quote(NAME)}": NAME,
        f"{lab}/sandboxes/{pool}": NAME,
        f"{lab}/waiting": NAME,
        f"{lab}/reservations": NAME,
        "/console/devices": NAME,
        f"/console/devices/{device}": NAME[:64],
        "/console/projects": NAME[:100],
        f"/console/projects/{project}": NAME,
        f"/console/sandboxes?q={quote(QUOTES)}": NAME[:100],
        "/console/sandboxes/new": NAME[:100],
        box: NAME,
        f"{box}/files": FILE,
        "/console/account": NAME,
        f"/console/account/events?kind={quote(NAME)}": "",
        f"/console/admin?q={quote(QUOTES)}": "",
        f"/console/admin/events?part=broker&subject={quote(NAME)}": "",
        "/console/admin/events?part=broker": NAME,
        "/console/admin/integrations": URL,
        f"/console/{quote(NAME, safe='')}": "",
    }
    for path, expected in shown.items():
        ada_page.goto(console.url + path)
        ada_page.wait_for_load_state("load")
        assert expected in everything_shown(ada_page), path
        assert_nothing_ran(ada_page)


def everything_shown(page: Page) -> str:
    """Text of the page, what its fields hold, and the times and numbers between."""
    return str(
        page.evaluate(
            """() => [document.body.textContent, ...[...document.querySelectorAll(
                "input, textarea, option")].map((each) => each.value || each.text)].join("\\n")"""
        )
    )


def assert_nothing_ran(page: Page) -> None:
    assert page.evaluate("window.ran") is None, page.url
    assert page.evaluate("window.violations") == [], page.url
    assert page.locator("main img, main svg[onload], main script").count() == 0, page.url


def test_nothing_runs_from_a_log_or_a_file_that_is_opened(
    ada_page: Page, console: ServerProcess, sandbox: str
) -> None:
    ada_page.goto(f"{console.url}/console/sandboxes/{sandbox}")
    with ada_page.expect_popup() as opened:
        ada_page.get_by_role("button", name="Open its page").click()
    opened.value.goto(f"{opened.value.url.partition('?')[0]}{quote(TAGS)}")
    expect(ada_page.locator("[data-log]")).to_contain_text("onerror")
    assert_nothing_ran(ada_page)
    ada_page.goto(f"{console.url}/console/sandboxes/{sandbox}/files")
    ada_page.get_by_role("button", name=FILE, exact=True).click()
    expect(ada_page.get_by_label("Text")).to_have_value(json.dumps(NAME))
    assert_nothing_ran(ada_page)


def test_nothing_runs_from_what_a_program_prints_in_a_terminal(
    ada_page: Page, console: ServerProcess, sandbox: str
) -> None:
    """Markup, a title, and a link that would be a script."""
    ada_page.goto(f"{console.url}/console/sandboxes/{sandbox}/terminal")
    expect(ada_page.get_by_text("Connected.")).to_be_visible()
    ada_page.locator("[data-terminal]").click()
    octal = "".join(f"\\{ord(each):03o}" for each in TAGS)
    link = f"\\033]8;;javascript:{RUN}\\033\\\\link-here\\033]8;;\\033\\\\"
    ada_page.keyboard.type(f"printf '{octal}\\033]0;{RUN}\\007{link}\\n'\n")
    expect(ada_page.locator(".xterm-rows")).to_contain_text(TAGS[:28])
    ada_page.on("dialog", lambda dialog: dialog.accept())
    ada_page.locator(".xterm-rows >> text=link-here").last.click(force=True)
    assert len(ada_page.context.pages) == 1
    assert_nothing_ran(ada_page)


def test_an_error_shows_what_was_sent_as_it_is(ada_page: Page, console: ServerProcess) -> None:
    ada_page.goto(f"{console.url}/console/labs/sandboxes/{quote(NAME, safe='')}")
    assert_nothing_ran(ada_page)
    ada_page.goto(f"{console.url}/console/labs?name={quote(NAME)}&hours={quote(NAME)}&cursor=x")
    assert_nothing_ran(ada_page)
