"""Logging in and out of the console, and who gets to which page."""

import re

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.console.conftest import log_in
from tests.e2e.console.people import BOB
from tests.e2e.console.sessions import operator_session, token_session
from tests.support.servers.processes import SECRETS, ServerProcess

COOKIE = "__Host-sandyard"


def test_a_login_continues_with_the_requested_page(page: Page, console: ServerProcess) -> None:
    page.goto(f"{console.url}/")
    expect(page.get_by_role("heading", name="Log in", exact=True)).to_be_visible()
    log_in(page, console, BOB)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.get_by_role("link", name="Sandboxes").first).to_be_visible()
    expect(page.get_by_role("link", name="Labs")).to_have_count(0)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in", exact=True)).to_be_visible()
    assert page.context.cookies() == []


def test_a_wrong_password_is_told_with_its_code(page: Page, console: ServerProcess) -> None:
    log_in(page, console, BOB, "not this one")
    expect(page.get_by_text("INVALID_CREDENTIALS")).to_be_visible()
    expect(page.get_by_text("req_")).to_be_visible()


def test_guesses_of_a_password_are_soon_refused(console: ServerProcess) -> None:
    """Through the console as by the API, for this name alone."""
    form = {"login": "guessed", "password": "one of many"}
    for _ in range(30):
        answer = httpx.post(
            f"{console.url}/console/login",
            data=form,
            headers={"Sec-Fetch-Site": "same-origin"},
            timeout=60,
        )
        if "RATE_LIMIT_EXCEEDED" in answer.text:
            break
        assert "INVALID_CREDENTIALS" in answer.text
    else:
        raise AssertionError("thirty guesses were answered")
    assert "set-cookie" not in answer.headers


def test_guesses_of_an_operator_token_are_soon_refused(console: ServerProcess) -> None:
    """From the address that they come from, the valid one too."""
    url = f"{console.url.replace('localhost', '127.0.0.1')}/console/login/operator"
    stranger = httpx.HTTPTransport(local_address="127.0.0.9")
    with httpx.Client(headers={"Sec-Fetch-Site": "same-origin"}, transport=stranger) as client:
        statuses = [client.post(url, data={"token": "a guess"}).status_code for _ in range(11)]
        answer = client.post(url, data={"token": console.admin_token})
    assert statuses == [401] * 10 + [429]
    assert (answer.status_code, "set-cookie" in answer.headers) == (429, False)
    assert re.search(r"Wait \d+ seconds", answer.text)
    assert operator_session(console)


def test_telemetrys_token_opens_devices_alone(console: ServerProcess) -> None:
    session = token_session(console, SECRETS["TELEMETRY_ADMIN_TOKEN"])
    home = session.get("/console")
    assert ('href="/console/devices"' in home.text, "/console/labs" in home.text) == (True, False)
    pages = ("devices", "labs", "labs/jobs", "admin", "admin/events")
    statuses = [session.get(f"/console/{page}").status_code for page in pages]
    assert statuses == [200, 403, 403, 403, 403]
    assert session.post("/console/labs/jobs/sync").status_code == 403
    with pytest.raises(httpx.HTTPStatusError):
        session.call("GET", "/v1/admin/stats")


def test_the_cookie_is_for_this_host_alone_and_out_of_reach_of_scripts(
    page: Page, console: ServerProcess
) -> None:
    log_in(page, console, BOB)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    [cookie] = page.context.cookies()
    assert cookie["name"] == COOKIE
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Lax")
    assert page.evaluate("document.cookie") == ""


def test_an_operator_sees_the_pool_change_without_a_reload(
    operator: Page, console: ServerProcess
) -> None:
    expect(operator.locator("#live.on")).to_be_visible()
    free = operator.locator("section", has_text="free").locator(".figure")
    before = int(free.inner_text().split()[0])
    headers = console.track | {"X-Track-ID": "seen-live"}
    httpx.post(f"{console.url}/v1/allocate", headers=headers, timeout=60).raise_for_status()
    expect(free).to_contain_text(re.compile(rf"^{before - 1} of \d+ free$"))


def test_an_admin_account_is_an_operator(admin: Page) -> None:
    admin.get_by_role("link", name="Labs").wait_for()
    expect(admin.get_by_role("link", name="Sandboxes").first).to_be_visible()


def test_a_page_of_another_origin_can_do_nothing(console: ServerProcess) -> None:
    for headers in (
        {"Sec-Fetch-Site": "same-site", "Origin": console.url},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://8080-sbx-a.localhost"},
        {},
    ):
        answer = httpx.post(f"{console.url}/console/logout", headers=headers, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize("path", ["/console", "/console/live"])
def test_without_a_session_every_page_leads_to_the_login(console: ServerProcess, path: str) -> None:
    for cookies in ({}, {COOKIE: "gAAAAA"}):
        answer = httpx.get(f"{console.url}{path}", cookies=cookies, timeout=60)
        assert (answer.status_code, answer.text) == (303, "")
        assert answer.headers["location"] == f"/console/login?next={path}"


def test_calls_of_pages_need_a_session(console: ServerProcess) -> None:
    answer = httpx.get(f"{console.url}/console/api/api/v1/me", timeout=60)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHORIZED")


def test_files_may_be_kept_for_good(console: ServerProcess) -> None:
    page = httpx.get(f"{console.url}/console/login", timeout=60).text
    [path] = [part for part in page.split('"') if part.endswith("/console.css")]
    answer = httpx.get(console.url + path, timeout=60)
    assert answer.headers["content-type"].startswith("text/css")
    assert "immutable" in answer.headers["cache-control"]
    assert httpx.get(console.url + path + "x", timeout=60).status_code == 404


def test_the_login_goes_on_to_pages_of_ours_alone(page: Page, console: ServerProcess) -> None:
    for target in ("//evil.example/console/", "https://evil.example/console/x", "/docs"):
        page.goto(f"{console.url}/console/login?next={target}")
        assert page.locator("input[name=next]").first.get_attribute("value") == "/console"


def without_refreshes(route: Route) -> None:
    """A page that refreshes itself without a session goes to the login before anybody clicks."""
    if route.request.method == "GET" and "hx-request" in route.request.headers:
        route.fulfill(status=204)
    else:
        route.continue_()


def test_the_login_goes_on_where_one_was_with_its_filter(
    page: Page, console: ServerProcess
) -> None:
    page.goto(f"{console.url}/console/labs?status=allocated&hours=6")
    page.get_by_label("Operator token").fill(console.admin_token)
    page.get_by_role("button", name="Log in as operator").click()
    expect(page.get_by_role("heading", name="The last 6 hours")).to_be_visible()
    expect(page.get_by_label("State").first).to_have_value("allocated")
    page.goto("about:blank")  # a live page without its cookie goes to the login by itself
    page.context.clear_cookies()
    page.goto(f"{console.url}/console/labs/jobs")
    page.get_by_label("Operator token").fill(console.admin_token)
    page.get_by_role("button", name="Log in as operator").click()
    expect(page.get_by_role("button", name="Run now: sync")).to_be_visible()
    page.route("**/console/labs/jobs", without_refreshes)
    page.context.clear_cookies()
    page.get_by_role("button", name="Run now: sync").click()  # leads to the login, and back here
    page.get_by_label("Operator token").fill(console.admin_token)
    page.get_by_role("button", name="Log in as operator").click()
    expect(page.get_by_role("button", name="Run now: sync")).to_be_visible()
