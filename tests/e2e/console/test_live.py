"""What happens is seen without a reload; and a delivery, bills, and a new account."""

import csv
import io
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, expect

from tests.e2e.console.conftest import logged_in
from tests.e2e.console.people import mailed, open_account, password
from tests.e2e.console.sessions import ConsoleSession, session_of
from tests.support.servers.processes import ServerProcess


def test_a_notification_comes_while_one_looks(
    ann: Page, anns_session: ConsoleSession, admins_session: ConsoleSession
) -> None:
    ann.get_by_role("link", name="Account").click()
    expect(ann.locator("#live.on")).to_be_visible()
    admins_session.post("/console/admin/broadcast", {"title": "Maintenance", "message": "At noon."})
    anns_session.call("POST", "/api/v1/projects", {"name": "tells the page"})
    expect(ann.locator("#notes")).to_contain_text("Maintenance")
    ann.get_by_role("button", name="Mark all read").click()
    expect(ann.locator("#notes strong")).to_have_count(0)


def test_bills_are_a_file(ann: Page) -> None:
    ann.get_by_role("link", name="Account").click()
    with ann.expect_download() as download:
        ann.get_by_role("link", name="Bills as CSV").click()
    header = next(csv.reader(io.StringIO(Path(download.value.path()).read_text())))
    assert "amount" in header


def test_events_are_filtered_and_followed(operator: Page, console: ServerProcess) -> None:
    operator.goto(f"{console.url}/console/admin/events?part=broker")
    operator.get_by_label("Kind").fill("lease.created")
    operator.get_by_label("Actor").fill("track:followed-1")
    operator.get_by_role("button", name="Filter").click()
    expect(operator.get_by_text("No events yet.")).to_be_visible()
    expect(operator.locator("#live.on")).to_be_visible()
    headers = console.track | {"X-Track-ID": "followed-1"}
    httpx.post(f"{console.url}/v1/allocate", headers=headers, timeout=60).raise_for_status()
    expect(operator.get_by_role("cell", name="track:followed-1")).to_be_visible()


def test_a_delivery_is_sent_again(operator: Page, console: ServerProcess) -> None:
    with httpx.Client(
        base_url=f"{console.url}/v1/admin", headers=console.admin, timeout=60
    ) as admin:
        hook = admin.post("/webhooks", json={"url": "http://127.0.0.1:9/again"}).json()
        headers = console.track | {"X-Track-ID": "again-1"}
        httpx.post(f"{console.url}/v1/allocate", headers=headers, timeout=60).raise_for_status()
        event = admin.get("/events?kind=lease.created&limit=1").json()["events"][0]["event_id"]
    operator.goto(f"{console.url}/console/admin/integrations/webhooks/{hook['webhook_id']}")
    rows = operator.locator("#log tbody tr", has_text=event)
    expect(rows.first).to_be_visible()
    before = rows.count()
    operator.get_by_label("Event id").fill(event)
    operator.get_by_role("button", name="Send it again").click()
    expect(rows.nth(before)).to_be_visible()


def test_one_signs_up_reads_the_mail_and_logs_in(page: Page, console: ServerProcess) -> None:
    page.goto(f"{console.url}/console/signup?token=invited")
    expect(page.get_by_label("Invitation")).to_have_value("invited")
    page.get_by_label("E-mail address").fill("flo@example.com")
    page.get_by_label("User name").fill("flo")
    page.get_by_label("Password").fill(password("flo"))
    page.get_by_role("button", name="Sign up").click()
    expect(page.get_by_text("You will get a mail with a link.")).to_be_visible()
    token = mailed(console.data_dir, "flo@example.com")
    page.goto(f"{console.url}/account/verify?token={token}")
    assert page.locator("body").evaluate("(body) => getComputedStyle(body).maxWidth") == "416px"
    page.get_by_role("button", name="Open my account").click()
    expect(page.get_by_text("flo", exact=False).first).to_be_visible()
    page.goto(f"{console.url}/console/login")
    page.get_by_label("E-mail address or user name").fill("flo")
    page.get_by_label("Password").fill(password("flo"))
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_role("link", name="Create one from a template")).to_be_visible()


def test_a_page_that_is_open_elsewhere_ends_with_the_login(
    browser: Browser, console: ServerProcess
) -> None:
    """Its stream too: nothing more is told to whoever kept the cookie."""
    open_account(console, "ivy")
    kept = session_of(console, "ivy")
    context = browser.new_context()
    page = logged_in(context.new_page(), kept)
    expect(page.locator("#live.on")).to_be_visible()
    with kept.live() as told:
        kept.post("/console/logout")
        assert [*told][-2:] == ["event: ended", "data: changed"]  # after what changed before
    expect(page.get_by_role("heading", name="Log in", exact=True)).to_be_visible()
    context.close()


def test_the_stream_of_an_admin_ends_with_the_role(
    browser: Browser, console: ServerProcess, admins_session: ConsoleSession
) -> None:
    """Whoever is a user again hears nothing more of the pool, and sees nothing of it."""
    open_account(console, "max")
    max_id = session_of(console, "max").call("GET", "/api/v1/me").json()["account_id"]
    set_role(admins_session, max_id, "admin")
    demoted = session_of(console, "max")
    context = browser.new_context()
    page = logged_in(context.new_page(), demoted)
    page.goto(f"{console.url}/console/labs")
    expect(page.locator("#live.on")).to_be_visible()
    with demoted.live() as told:
        set_role(admins_session, max_id, "user")
        lines = [*told]
        assert lines[-2:] == ["event: ended", "data: changed"]
    expect(page.locator("#pool")).to_have_count(0)
    expect(page.get_by_role("heading", name="Log in", exact=True)).to_be_visible()
    assert demoted.get("/console/labs").status_code == 303
    context.close()


def set_role(admin: ConsoleSession, account_id: str, role: str) -> None:
    admin.call("PUT", f"/api/v1/admin/users/{account_id}/role", {"role": role})
