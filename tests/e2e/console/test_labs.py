"""Labs in the console: the pool, one sandbox and its history, actions, jobs and many at once."""

import re
from datetime import UTC, datetime, timedelta

import httpx
from playwright.sync_api import Page, expect

from tests.e2e.console.conftest import confirm, lease
from tests.e2e.console.people import ADMIN
from tests.support.servers.processes import ServerProcess


def test_the_pool_is_counted_listed_and_searched(operator: Page, console: ServerProcess) -> None:
    leased = lease(console, "algebra-7")
    counts = httpx.get(f"{console.url}/v1/admin/stats", headers=console.admin, timeout=60).json()
    operator.get_by_role("link", name="Labs").click()
    expect(operator.locator("dt:text-is('total') + dd")).to_have_text(str(counts["total"]))
    operator.keyboard.press("/")
    expect(operator.get_by_label("Track, name or id")).to_be_focused()
    operator.keyboard.type("algeb")
    operator.get_by_role("button", name="Search").click()
    expect(operator.locator("#list tbody tr")).to_have_count(1)
    operator.get_by_role("link", name=leased["name"]).click()
    expect(operator.get_by_text("lease.created")).to_be_visible()
    expect(operator.get_by_text("track:algebra-7")).to_be_visible()


def test_an_action_is_confirmed_and_told_in_the_history(
    operator: Page, console: ServerProcess
) -> None:
    leased = lease(console, "geometry-1")
    operator.goto(f"{console.url}/console/labs/sandboxes/{leased['sandbox_id']}")
    operator.get_by_role("button", name="Release").click()
    operator.get_by_role("button", name="Cancel").click()
    expect(operator.locator(".state.allocated")).to_be_visible()
    operator.get_by_role("button", name="Release").click()
    with operator.expect_response(lambda answer: "hx-request" in answer.request.headers):
        lease(console, "geometry-2")  # a live refresh while the question is open
    confirm(operator)
    expect(operator.get_by_text(f"{leased['name']}: end its lease and delete it.")).to_be_visible()
    expect(operator.get_by_text("lease.ended")).to_be_visible()


def test_only_a_lease_has_an_end(operator: Page, console: ServerProcess) -> None:
    leased = lease(console, "ending-1")
    operator.goto(f"{console.url}/console/labs?q={leased['sandbox_id'][:12]}")
    ends = operator.locator("#list tbody tr td:nth-child(4)")
    expect(ends.locator("time")).to_be_visible()
    headers = console.track | {"X-Track-ID": "ending-1"}
    path = f"{console.url}/v1/sandboxes/{leased['sandbox_id']}/mark-for-deletion"
    assert httpx.post(path, headers=headers, timeout=60).is_success
    expect(ends).to_have_text("\N{EN DASH}")


def test_a_job_runs_now_and_tells_its_counts(operator: Page, console: ServerProcess) -> None:
    operator.goto(f"{console.url}/console/labs/jobs")
    expect(operator.locator("#provider .state.ok")).to_have_text("reachable")
    sync = operator.locator("#jobs tr", has_text="compare the pool")
    expect(sync.locator("time")).to_have_count(2)  # the last run and the next
    operator.get_by_role("button", name="Run now: sync").click()
    expect(operator.locator("#job-result dt:text-is('listed')")).to_be_visible()


def test_the_last_day_is_drawn_and_who_waits_is_listed(
    operator: Page, console: ServerProcess
) -> None:
    operator.goto(f"{console.url}/console/labs?hours=1")
    expect(operator.locator("#charts .uplot canvas")).to_have_count(2)
    expect(operator.locator("dt:text-is('exhausted in') + dd")).to_be_visible()
    headers = console.track | {"X-Track-ID": "late-1", "X-Sandbox-Name-Prefix": "<i>none"}
    assert httpx.post(f"{console.url}/v1/queue", headers=headers, timeout=60).status_code == 202
    waiting = operator.locator("#pool tbody tr", has_text="late-1")
    expect(waiting).to_contain_text("<i>none")
    operator.get_by_role("link", name="Waiting").click()
    expect(operator.locator("#waiting tr", has_text="late-1")).to_contain_text("waiting")


def test_a_sandbox_is_found_by_its_id(operator: Page, console: ServerProcess) -> None:
    leased = lease(console, "found-1")
    operator.goto(f"{console.url}/console/labs?q={leased['sandbox_id'][:12]}")
    expect(operator.get_by_label("Track, name or id")).to_have_value(leased["sandbox_id"][:12])
    expect(operator.locator("#list tbody tr")).to_have_count(1)
    operator.get_by_label("Track, name or id").fill(leased["sandbox_id"])
    operator.get_by_role("button", name="Search").click()
    expect(operator.get_by_role("heading", name=leased["name"])).to_be_visible()


def test_a_sandbox_is_found_by_how_its_name_begins(operator: Page, console: ServerProcess) -> None:
    operator.goto(f"{console.url}/console/labs")
    operator.get_by_label("Track, name or id").fill("sandbox-000")
    operator.get_by_role("button", name="Search").click()
    expect(operator.locator("#list tbody tr a").first).to_have_text(re.compile("^sandbox-000"))
    assert "q=sandbox-000" in operator.url
    expect(operator.locator("#list tbody tr").first).to_be_in_viewport()
    operator.get_by_label("Track, name or id").fill("no name, no track")
    operator.get_by_role("button", name="Search").click()
    expect(operator.get_by_text("No sandbox matches.")).to_be_visible()


def test_a_bulk_deletion_is_previewed_first(operator: Page, console: ServerProcess) -> None:
    for track in ("many-1", "many-2"):
        lease(console, track)
    operator.goto(f"{console.url}/console/labs")
    form = operator.locator("form[hx-post$='/bulk']").first
    form.get_by_label("State").select_option("allocated")
    form.get_by_label("Track").fill("many-1")
    form.get_by_role("button", name="Show which").click()
    expect(operator.get_by_text("1 would be deleted.")).to_be_visible()
    operator.get_by_role("button", name="Delete 1").click()
    confirm(operator)
    expect(operator.get_by_text("1 sent to deletion")).to_be_visible()
    form.get_by_label("Action").select_option("hold")
    form.get_by_label("Track").fill("many-2")
    form.get_by_label("Reason").fill("no network")
    form.get_by_role("button", name="Show which").click()
    operator.get_by_role("button", name="Hold 1").click()
    confirm(operator)
    expect(operator.get_by_text("1 held, 0 skipped")).to_be_visible()


def test_quarantined_sandboxes_are_restored_together(
    operator: Page, console: ServerProcess
) -> None:
    admin = f"{console.url}/v1/admin"
    free = httpx.get(
        f"{admin}/sandboxes?status=available&limit=2", headers=console.admin, timeout=60
    ).json()["sandboxes"]
    body = {"reason": "wrong image", "names": [each["name"] for each in free]}
    quarantined = httpx.post(
        f"{admin}/bulk-quarantine", headers=console.admin, json=body, timeout=60
    )
    assert quarantined.json()["changed"] == 2
    operator.goto(f"{console.url}/console/labs")
    form = operator.locator("form[hx-post$='/bulk']").first
    form.get_by_label("Action").select_option("restore")
    form.get_by_role("button", name="Show which").click()
    operator.get_by_role("button", name=re.compile(r"^Restore [2-9]$")).click()
    confirm(operator)
    expect(operator.get_by_text(re.compile("[2-9] restored, 0 skipped"))).to_be_visible()


def test_an_error_shows_its_code_and_request_id(operator: Page, console: ServerProcess) -> None:
    operator.goto(f"{console.url}/console/labs/sandboxes/00000000-0000-5000-8000-000000000000")
    expect(operator.get_by_text("SANDBOX_NOT_FOUND")).to_be_visible()
    expect(operator.get_by_text("req_")).to_be_visible()


def test_an_error_shows_its_details(ann: Page, console: ServerProcess) -> None:
    ann.get_by_role("heading", name="Overview").wait_for()
    ann.goto(f"{console.url}/console/sandboxes?sort=colour")
    expect(ann.locator(".alert").get_by_text("sort:")).to_be_visible()


def test_a_search_without_a_match_leads_to_the_story_of_a_track_after_the_deletion(
    operator: Page, console: ServerProcess
) -> None:
    leased = lease(console, "gone-track")
    headers = console.track | {"X-Track-ID": "gone-track"}
    path = f"{console.url}/v1/sandboxes/{leased['sandbox_id']}/mark-for-deletion"
    assert httpx.post(path, headers=headers, timeout=60).is_success
    cleanup = f"{console.url}/v1/admin/cleanup"
    assert httpx.post(cleanup, headers=console.admin, timeout=60).json()["deleted"] >= 1
    operator.goto(f"{console.url}/console/labs?q=gone-track")
    operator.get_by_role("link", name="track's page").click()
    expect(operator.get_by_role("heading", name="gone-track")).to_be_visible()
    row = operator.locator("#leases tbody tr")
    expect(row).to_contain_text(leased["name"])
    expect(row).to_contain_text("lease.ended track:gone-track")
    expect(row).to_contain_text("released by its track")
    expect(operator.get_by_role("cell", name="sandbox.deleted")).to_be_visible()


def test_the_pool_is_sorted_by_a_column(operator: Page, console: ServerProcess) -> None:
    leased = lease(console, "sorted-1")
    operator.goto(f"{console.url}/console/labs")
    names = operator.locator("#list tbody tr td:first-child")
    shown = names.all_inner_texts()
    assert shown == sorted(shown)
    operator.get_by_role("link", name="Name", exact=True).click()
    expect(operator.locator("th[aria-sort=descending]")).to_have_text("Name")
    assert names.all_inner_texts() == sorted(shown, reverse=True)
    operator.get_by_role("link", name="Lease ends").click()
    expect(operator.locator("#list tbody tr").first.locator(".state.allocated")).to_be_visible()
    operator.get_by_role("link", name="sorted-1").click()
    row = operator.locator("#leases tbody tr")
    expect(row).to_contain_text(leased["name"])
    expect(row.locator(".state")).to_have_text("live")


def test_labs_are_for_operators(ann: Page, console: ServerProcess) -> None:
    ann.get_by_role("heading", name="Overview").wait_for()
    ann.goto(f"{console.url}/console/labs")
    expect(ann.get_by_text("OPERATORS_ONLY")).to_be_visible()
    answer = ann.evaluate("fetch('/console/api/v1/admin/stats').then(each => each.status)")
    assert answer == 401


def test_a_lease_is_extended_and_a_broken_sandbox_replaced(
    operator: Page, console: ServerProcess
) -> None:
    leased = lease(console, "broken-1")
    operator.goto(f"{console.url}/console/labs/sandboxes/{leased['sandbox_id']}")
    expect(operator.locator("#live.on")).to_be_visible()
    operator.get_by_role("button", name="Extend").click()
    confirm(operator)
    expect(operator.get_by_text("lease.extended")).to_be_visible()
    operator.get_by_label("Reason to replace").fill("no network")
    operator.get_by_role("button", name="Replace").click()
    confirm(operator)
    expect(operator.locator(".state.held")).to_be_visible()
    instead = lease(console, "broken-1")
    assert instead["sandbox_id"] != leased["sandbox_id"]
    notice = f"{leased['name']}: give its track another one, and hold this. Done."
    expect(operator.get_by_text(notice)).to_be_visible()
    expect(operator.get_by_text(f"Its track has {instead['name']} now.")).to_be_visible()


def test_a_click_is_not_lost_to_a_live_refresh(operator: Page, console: ServerProcess) -> None:
    leased = lease(console, "clicked-1")
    operator.goto(f"{console.url}/console/labs/sandboxes/{leased['sandbox_id']}")
    expect(operator.locator("#live.on")).to_be_visible()
    operator.get_by_role("button", name="Extend").hover()
    operator.mouse.down()
    with operator.expect_response(lambda answer: "hx-request" in answer.request.headers):
        lease(console, "clicked-2")
    operator.wait_for_timeout(100)  # for the swap that would have come
    operator.mouse.up()
    expect(operator.get_by_role("button", name="Go on")).to_be_visible()


def test_a_button_works_as_soon_as_a_live_refresh_shows_it(
    operator: Page, console: ServerProcess
) -> None:
    leased = lease(console, "refreshed-1")
    operator.goto(f"{console.url}/console/labs/sandboxes/{leased['sandbox_id']}")
    expect(operator.locator("#live.on")).to_be_visible()
    operator.evaluate(
        """() => {
            const extend = () => document.querySelector("form[hx-post$='/extend'] button").click();
            document.addEventListener("htmx:afterSwap", () => setTimeout(extend), {once: true});
        }"""
    )
    lease(console, "refreshed-2")
    expect(operator.get_by_role("button", name="Go on")).to_be_visible()


def test_an_admin_appears_by_name_in_the_events_whatever_their_browser_sends(
    admin: Page, console: ServerProcess
) -> None:
    sandbox_id = lease(console, "named-1")["sandbox_id"]
    admin.goto(f"{console.url}/console/labs/sandboxes/{sandbox_id}")
    admin.get_by_role("button", name="Extend").click()
    confirm(admin)
    expect(admin.get_by_text("lease.extended")).to_be_visible()
    status = admin.evaluate(
        """id => fetch(`/console/api/v1/admin/sandboxes/${id}/hold`, {
            method: "POST",
            headers: {"Content-Type": "application/json", "X-Operator": "mallory"},
            body: JSON.stringify({reason: "to look at"}),
        }).then(each => each.status)""",
        sandbox_id,
    )
    assert status == 200
    url = f"{console.url}/v1/admin/events?track=named-1"
    events = httpx.get(url, headers=console.admin, timeout=60).json()["events"]
    actors = {each["kind"]: each["actor"] for each in events}
    assert actors["lease.extended"] == actors["sandbox.held"] == f"operator:{ADMIN}"


def test_a_course_has_sandboxes_reserved_and_gives_them_back(
    operator: Page, console: ServerProcess
) -> None:
    operator.goto(f"{console.url}/console/labs/reservations")
    expect(operator.get_by_text("No reservations.")).to_be_visible()
    operator.get_by_label("How many").fill("3")
    operator.get_by_label("Tracks begin with").fill("course-")
    operator.get_by_label("To", exact=True).fill("2099-01-01T09:00")
    operator.get_by_role("button", name="Reserve").click()
    expect(operator.get_by_text("INVALID_RESERVATION")).to_be_visible()
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    operator.get_by_label("To", exact=True).fill(tomorrow.strftime("%Y-%m-%dT%H:%M"))
    operator.get_by_role("button", name="Reserve").click()
    expect(operator.get_by_text("3 of 3")).to_be_visible()
    operator.get_by_role("link", name="Pool").click()
    expect(operator.locator("#soon")).to_contain_text("course-")
    operator.get_by_role("link", name="Reservations").click()
    operator.get_by_role("button", name="Cancel course-").click()
    confirm(operator)
    expect(operator.locator("#calendar tr", has_text="course-")).to_have_count(0)


def test_a_client_and_a_webhook_are_made_and_deleted(
    operator: Page, console: ServerProcess
) -> None:
    operator.goto(f"{console.url}/console/admin/integrations")
    operator.get_by_label("Name").fill("acme")
    operator.get_by_role("button", name="Make a client").click()
    token = operator.locator(".notice code").inner_text()
    expect(operator.get_by_role("cell", name="acme", exact=True)).to_be_visible()
    headers = {"Authorization": f"Bearer {token}", "X-Track-ID": "acme-1"}
    httpx.post(f"{console.url}/v1/allocate", headers=headers, timeout=60).raise_for_status()
    operator.get_by_role("button", name="Delete acme").click()
    confirm(operator)
    expect(operator.get_by_role("cell", name="acme", exact=True)).to_have_count(0)
    operator.get_by_label("Address").fill("http://127.0.0.1:9/hook")
    operator.get_by_role("button", name="Add a webhook").click()
    expect(operator.locator(".notice code")).to_contain_text("whsec_")
    operator.get_by_role("link", name="http://127.0.0.1:9/hook").click()
    lease(console, "told-1")
    expect(operator.locator("#log tbody")).to_contain_text("Cannot connect to host 127.0.0.1:9")
