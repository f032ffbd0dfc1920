"""Devices, projects, account and admin in the console."""

import json
import re
from pathlib import Path

from playwright.sync_api import Page, expect

from sandyard.console.screens import account
from tests.e2e.console.conftest import confirm, log_in
from tests.e2e.console.people import BOB, open_account
from tests.e2e.console.readings import send_reading
from tests.e2e.console.sessions import ConsoleSession
from tests.support.servers.processes import ServerProcess


def test_a_device_is_seen_from_its_key_to_its_chart(operator: Page, console: ServerProcess) -> None:
    operator.get_by_role("link", name="Devices").first.click()
    operator.get_by_label("What for").fill("<i>greenhouse</i>")
    operator.get_by_role("button", name="Make a key").click()
    api_key = operator.locator(".notice code").first.inner_text()
    send_reading(console, api_key, "<script>alert(1)</script>", hardware_id="AA:BB:CC:DD:EE:02")
    operator.get_by_role("link", name="<script>alert(1)</script>").click()
    expect(operator.locator(".uplot canvas")).to_be_visible()
    expect(operator.get_by_text("latest 21.5")).to_be_visible()
    operator.get_by_label("Name").fill("north")
    operator.get_by_role("button", name="Rename").click()
    expect(operator.get_by_role("heading", name="north")).to_be_visible()
    operator.goto(f"{console.url}/console/devices")
    key = operator.locator("tr", has_text="<i>greenhouse</i>")
    key.get_by_role("button", name="Revoke").click()
    confirm(operator)
    expect(key.get_by_text("revoked")).to_be_visible()
    assert operator.content().count(api_key) == 0


def test_a_project_is_shown_beside_its_files(ann: Page, anns_session: ConsoleSession) -> None:
    made = anns_session.call("POST", "/api/v1/projects", {"name": "beside its files"}).json()
    ann.get_by_role("link", name="Projects").click()
    ann.get_by_role("link", name=made["name"]).click()
    ann.get_by_label("Text").fill("<h1>Not yet</h1>")
    ann.get_by_role("button", name="Save", exact=True).click()
    expect(ann.get_by_text("version 1")).to_be_visible()
    expect(ann.locator("h1")).to_contain_text("no preview")
    expect(ann.locator("iframe")).to_have_count(0)
    ann.get_by_role("textbox", name="File").fill("later.txt")
    ann.get_by_label("Text").fill("in the second file")
    ann.get_by_role("button", name="Save", exact=True).click()
    expect(ann.get_by_text("version 2")).to_be_visible()
    expect(ann.get_by_label("Text")).to_have_value("in the second file")
    ann.get_by_label("Text").fill("not saved")
    ann.get_by_role("button", name="Show it").click()
    expect(ann.get_by_text("Your unsaved changes are lost.")).to_be_visible()
    ann.get_by_role("button", name="Cancel").click()
    expect(ann.get_by_label("Text")).to_have_value("not saved")
    ann.get_by_role("button", name="Save", exact=True).click()
    expect(ann.get_by_text("version 3")).to_be_visible()
    ann.get_by_role("link", name="index.html").click()
    ann.get_by_label("Text").fill("<h1>Hello from Ann</h1>")
    ann.get_by_role("button", name="Save and show").click()
    shown = ann.frame_locator("iframe").get_by_role("heading", name="Hello from Ann")
    expect(shown).to_be_visible(timeout=60_000)
    status = ann.locator("sandbox-status")
    expect(status.get_by_text("Running", exact=True)).to_be_visible()
    expect(status.get_by_role("timer")).to_contain_text("left")
    expect(status.get_by_role("link", name="Open preview")).to_have_attribute(
        "href", re.compile("token=")
    )
    ann.get_by_role("button", name="Stop", exact=True).click()
    confirm(ann)
    expect(ann.locator("iframe")).to_have_count(0)


def test_a_key_is_shown_once_and_deleted(ann: Page) -> None:
    ann.get_by_role("link", name="Account").click()
    ann.get_by_label("Name", exact=True).fill("laptop")
    ann.get_by_role("button", name="Make a key").click()
    api_key = ann.locator(".notice code").first.inner_text()
    expect(ann.get_by_role("cell", name="laptop", exact=True)).to_be_visible()
    ann.get_by_role("button", name="Delete laptop").click()
    confirm(ann)
    expect(ann.get_by_role("cell", name="laptop", exact=True)).to_have_count(0)
    assert api_key not in ann.content()
    ann.get_by_role("link", name="Events", exact=True).click()
    expect(ann.locator("tbody tr").first).to_contain_text("key.revoked")


def test_an_ssh_key_is_added_and_removed(ann: Page) -> None:
    ann.get_by_role("link", name="Account").click()
    ann.get_by_label("Computer").fill("desk")
    ann.get_by_label("Public key").fill(
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJGwRtCEypbAMtgpY1aqJF6XEjMcLBm2mxtWyoYx1lWY"
    )
    ann.get_by_role("button", name="Add a key").click()
    expect(ann.get_by_role("cell", name="SHA256:/TIWw")).to_be_visible()
    ann.get_by_role("button", name="Remove desk").click()
    confirm(ann)
    expect(ann.get_by_role("cell", name="desk", exact=True)).to_have_count(0)


def test_quota_month_and_notifications_are_an_accounts_own(
    ann: Page, anns_session: ConsoleSession
) -> None:
    anns_session.call("POST", "/api/v1/api-keys", {"name": "noted"})
    ann.get_by_role("link", name="Account").click()
    expect(ann.get_by_role("heading", name="This month")).to_be_visible()
    expect(ann.locator("meter").first).to_be_visible()
    assert set(ann.locator(".quota span:first-child").all_inner_texts()) == set(
        account.QUOTA_NAMES.values()
    )
    expect(ann.locator("#notes")).to_contain_text("API key")


def test_an_account_is_exported_and_deleted(page: Page, console: ServerProcess) -> None:
    open_account(console, "eve")
    log_in(page, console, "eve")
    page.get_by_role("link", name="Account").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export your data").click()
    found = json.loads(Path(download.value.path()).read_text())
    assert [each["username"] for each in found["account"]] == ["eve"]
    assert found["project_files"] == []
    page.get_by_text("Delete this account").first.click()
    form = page.locator("form[hx-post$='/account/delete']")
    form.get_by_label("Password").fill("eve has a password")
    form.get_by_role("button", name="Delete this account").click()
    confirm(page)
    expect(page.get_by_text("Your account is deleted.")).to_be_visible()
    log_in(page, console, "eve")
    expect(page.get_by_text("INVALID_CREDENTIALS")).to_be_visible()


def test_a_token_login_shows_that_users_need_an_admin_account(
    operator: Page, console: ServerProcess
) -> None:
    operator.goto(f"{console.url}/console/admin")
    expect(operator.get_by_text("Log in with an admin account to see users.")).to_be_visible()


def test_an_admin_deactivates_and_brings_back_a_user(admin: Page) -> None:
    admin.get_by_role("link", name="Admin").click()
    parts = admin.locator("#health li")
    expect(parts).to_have_count(4)
    expect(parts.locator(".state.ok")).to_have_count(4)
    expect(parts.filter(has_text="Telemetry")).to_contain_text("on sqlite")
    admin.get_by_role("button", name=f"Deactivate {BOB}").click()
    confirm(admin)
    admin.get_by_role("button", name=f"Activate {BOB}", exact=True).click()
    confirm(admin)
    expect(admin.get_by_role("button", name=f"Deactivate {BOB}")).to_be_visible()
    admin.get_by_role("link", name="Events", exact=True).click()
    admin.get_by_role("link", name="Platform").click()
    expect(admin.get_by_text("account.deactivated").first).to_be_visible()
