"""Labs in the console: the pool, one sandbox and its history, actions, jobs and many at once."""

import re
from datetime import UTC, datetime, timedelta

import httpx
from playwright.sync_api import Page, expect

from tests.e2e.console.conftest import confirm, lease
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


def test_many_are_deleted_after_a_look_at_which(operator: Page, console: ServerProcess) -> None:
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


def test_an_error_shows_its_code_and_request_id(operator: Page, console: ServerProcess) -> None:
    operator.goto(f"{console.url}/console/labs/sandboxes/00000000-0000-5000-8000-000000000000")
    expect(operator.get_by_text("SANDBOX_NOT_FOUND")).to_be_visible()
    expect(operator.get_by_text("req_")).to_be_visible()


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
    operator.get_by_role("button", name="Extend").click()
    confirm(operator)
    expect(operator.get_by_text("lease.extended")).to_be_visible()
    operator.get_by_label("Reason to replace").fill("no network")
    operator.get_by_role("button", name="Replace").click()
    confirm(operator)
    expect(operator.locator(".state.held")).to_be_visible()
    assert lease(console, "broken-1")["sandbox_id"] != leased["sandbox_id"]


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
