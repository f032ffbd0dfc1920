"""How the console is looked at: below a path, by keyboard, dark, and in the viewer's zone."""

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from sandyard.kit.free_ports import free_port
from tests.e2e.console.conftest import confirm, logged_in
from tests.e2e.console.prefix_proxy import prefix_proxy
from tests.e2e.console.sessions import ConsoleSession
from tests.support.servers.processes import sandyard_serve

WIDTH_OF_BAR = """(cell) => {
  const bar = cell.appendChild(document.createElement("div"));
  bar.style.width = "calc(var(--last) - var(--first))";
  const width = bar.offsetWidth;
  bar.remove();
  return width;
}"""


def test_it_works_below_a_path_and_asks_for_nothing_beside_it(page: Page, tmp_path: Path) -> None:
    port = free_port()
    base = f"http://localhost:{port}/sandyard"
    settings = {"PUBLIC_URL": base, "PARTS": "broker"}
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with (
        sandyard_serve(tmp_path / "data", environment=settings) as server,
        prefix_proxy(port, "/sandyard", server.url),
    ):
        page.goto(f"{base}/")
        page.get_by_label("Operator token").fill(server.admin_token)
        page.get_by_role("button", name="Log in as operator").click()
        expect(page.locator("#live.on")).to_be_visible()
        page.get_by_role("link", name="Labs").click()
        expect(page.locator("#charts [data-chart]").first).not_to_be_empty()
        page.get_by_role("link", name="Jobs and provider").click()
        page.get_by_role("button", name="Run now: sync").click()
        expect(page.locator("#job-result dt:text-is('listed')")).to_be_visible()
        page.goto(f"{base}/console/admin/events?part=broker")
        expect(page.locator("#live.on")).to_be_visible()
        track = server.track | {"X-Track-ID": "below-a-path"}
        httpx.post(f"{server.url}/v1/allocate", headers=track, timeout=60).raise_for_status()
        expect(page.get_by_role("cell", name="track:below-a-path")).to_be_visible()
        page.goto("about:blank")  # ends the event stream before the proxy
    assert len(asked) > 10
    assert [each for each in asked if not each.startswith((base, "about:"))] == []


def test_a_page_is_reached_and_a_question_answered_by_keyboard(operator: Page) -> None:
    operator.keyboard.press("Tab")
    expect(operator.get_by_role("link", name="Skip to content")).to_be_focused()
    focused = "document.activeElement.textContent"
    for _ in range(10):
        operator.keyboard.press("Tab")
        if operator.evaluate(focused) == "Labs":
            break
    operator.keyboard.press("Enter")
    operator.get_by_role("heading", name="Labs").wait_for()
    operator.locator("#list tr", has=operator.locator(".available")).first.locator("a").focus()
    operator.keyboard.press("Enter")
    operator.get_by_label("Reason to quarantine").focus()
    operator.keyboard.type("by keyboard")
    operator.keyboard.press("Enter")
    expect(operator.locator("dialog[open]")).to_be_visible()
    operator.keyboard.press("Escape")
    expect(operator.locator(".state.available").first).to_be_visible()
    operator.get_by_label("Reason to quarantine").focus()
    operator.keyboard.press("Enter")
    operator.keyboard.press("Tab")
    operator.keyboard.press("Enter")
    expect(operator.locator(".state.stale")).to_be_visible()
    expect(operator.get_by_text("by keyboard").first).to_be_visible()
    operator.get_by_role("button", name="Restore").click()
    operator.get_by_role("button", name="Go on").click()
    expect(operator.locator(".state.available")).to_be_visible()


def test_dark_and_light_are_chosen_and_kept(ann: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = ann.evaluate(ground)
    ann.get_by_role("button", name="Switch between dark and light").click()
    dark = ann.evaluate(ground)
    assert dark != light
    ann.reload()
    assert ann.evaluate(ground) == dark


def test_times_are_in_the_viewers_zone(browser: Browser, anns_session: ConsoleSession) -> None:
    shown = {}
    for zone in ("Asia/Tokyo", "America/New_York"):
        context = browser.new_context(timezone_id=zone, locale="en-GB")
        page = context.new_page()
        logged_in(page, anns_session)
        page.get_by_role("link", name="Projects").click()
        time = page.locator("main time").first
        expect(time).to_have_attribute("title", re.compile(":"))
        shown[zone] = (time.get_attribute("datetime"), time.get_attribute("title"))
        context.close()
    tokyo, york = shown.values()
    assert tokyo[0] == york[0]
    assert tokyo[1] != york[1]
    assert str(tokyo[1]).endswith(("GMT+9", "JST"))


@pytest.mark.parametrize(
    ("zone", "hours"), [("Pacific/Kiritimati", 14), ("Pacific/Pago_Pago", -11)]
)
def test_a_calendar_has_the_days_of_the_viewers_zone(
    browser: Browser, operators_session: ConsoleSession, zone: str, hours: int
) -> None:
    """What is entered too: nine to one of tomorrow, wherever that is, and wide enough to see."""
    here = timezone(timedelta(hours=hours))
    nine = datetime.now(here).replace(hour=9, minute=0, second=0, microsecond=0) + timedelta(days=1)
    one, track = nine.replace(hour=13), f"zone{hours}-"
    context = browser.new_context(timezone_id=zone, locale="en-GB")
    page = logged_in(context.new_page(), operators_session)
    page.goto(f"{operators_session.url}/console/labs/reservations")
    expect(page.locator("[data-zone]")).to_have_text(zone)
    page.get_by_label("How many").fill("1")
    page.get_by_label("Tracks begin with").fill(track)
    page.get_by_label("From", exact=True).fill(f"{nine:%Y-%m-%dT%H:%M}")
    page.get_by_label("To", exact=True).fill(f"{one:%Y-%m-%dT%H:%M}")
    page.get_by_role("button", name="Reserve").click()
    row = page.locator("#calendar tbody tr", has_text=track)
    expect(row.locator("td.day").nth(1)).to_have_class(re.compile("busy"))
    expect(row.locator("td.busy")).to_have_count(1)
    assert row.locator("td.busy").evaluate(WIDTH_OF_BAR) >= 12
    expect(row.locator("time").first).to_have_text(re.compile("09:00"))
    tomorrow = page.locator("#calendar th.day").nth(1)
    expect(tomorrow).to_have_text(re.compile(rf"\b{nine.day}\b"))
    page.get_by_role("button", name=f"Cancel {track}").click()
    confirm(page)
    expect(row).to_have_count(0)
    context.close()
    listed = operators_session.call("GET", "/v1/admin/reservations").json()["reservations"]
    [made] = [each for each in listed if each["track_prefix"] == track]
    assert (made["from"], made["to"]) == (int(nine.timestamp()), int(one.timestamp()))


def test_a_key_expires_when_its_day_begins_where_one_is(
    browser: Browser, anns_session: ConsoleSession
) -> None:
    day = datetime.now(timezone(timedelta(hours=14))).date() + timedelta(days=9)
    context = browser.new_context(timezone_id="Pacific/Kiritimati")
    page = logged_in(context.new_page(), anns_session)
    page.goto(f"{anns_session.url}/console/account")
    page.get_by_label("Name", exact=True).fill("for nine days")
    page.get_by_label("Expires on").fill(day.isoformat())
    page.get_by_role("button", name="Make a key").click()
    expect(page.get_by_role("cell", name="for nine days", exact=True)).to_be_visible()
    context.close()
    listed = anns_session.call("GET", "/api/v1/api-keys").json()["api_keys"]
    [expires] = [each["expires_at"] for each in listed if each["name"] == "for nine days"]
    assert datetime.fromisoformat(expires) == datetime.fromisoformat(f"{day}T00:00:00+14:00")
