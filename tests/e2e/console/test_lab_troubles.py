"""What an operator does about a sandbox that is broken, or a provider that is: hold, delete again,
and see that the circuit is open."""

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.e2e.console.conftest import confirm, lease
from tests.support.servers.processes import ServerProcess


@pytest.fixture
def away(provider: str) -> Iterator[str]:
    """The provider, which answers no call until the test says so."""
    set_outage(provider, "error")
    yield provider
    set_outage(provider, "none")


def set_outage(provider: str, outage: str) -> None:
    httpx.patch(f"{provider}/_sim", json={"outage": outage}, timeout=60).raise_for_status()


def run_job(console: ServerProcess, name: str) -> httpx.Response:
    url = f"{console.url}/v1/admin/jobs/{name}/run"
    return httpx.post(url, headers=console.admin, timeout=30)


def open_circuit(console: ServerProcess) -> None:
    """The provider's: it is shown as open until the next call, some seconds later."""
    for _ in range(10):
        if run_job(console, "sync").json()["error"]["code"] == "PROVIDER_CIRCUIT_OPEN":
            return
    raise AssertionError("the circuit stays closed")


def path_of_free(console: ServerProcess) -> str:
    """Of the page of a sandbox that nobody has."""
    answer = httpx.get(
        f"{console.url}/v1/admin/sandboxes?status=available&limit=1",
        headers=console.admin,
        timeout=60,
    )
    return f"{console.url}/console/labs/sandboxes/{answer.json()['sandboxes'][0]['sandbox_id']}"


def test_one_sandbox_is_held_with_a_reason_and_let_go(
    operator: Page, console: ServerProcess
) -> None:
    operator.goto(path_of_free(console))
    expect(operator.locator("#live.on")).to_be_visible()
    operator.get_by_label("Reason to hold").fill("its disk is looked at")
    track = console.track | {"X-Track-ID": "while-typing", "X-Sandbox-Name-Prefix": "no-such-"}
    httpx.post(f"{console.url}/v1/queue", headers=track, timeout=60).raise_for_status()
    operator.wait_for_timeout(2500)  # a live refresh would have come by now
    expect(operator.get_by_label("Reason to hold")).to_have_value("its disk is looked at")
    operator.get_by_role("button", name="Hold").click()
    confirm(operator)
    expect(operator.locator(".state.held")).to_be_visible()
    expect(operator.locator("dt:text-is('held until') + dd time")).to_be_visible()
    expect(operator.get_by_role("cell", name="its disk is looked at").first).to_be_visible()
    operator.get_by_role("button", name="Restore").click()
    confirm(operator)
    expect(operator.locator(".state.available")).to_be_visible()


def test_a_quarantined_sandbox_is_called_so_with_its_reason(
    operator: Page, console: ServerProcess
) -> None:
    operator.goto(path_of_free(console))
    operator.get_by_label("Reason to quarantine").fill("its clock is wrong")
    operator.get_by_role("button", name="Quarantine").click()
    confirm(operator)
    expect(operator.locator("h1 .state")).to_have_text("quarantined")
    expect(operator.locator("h1")).to_contain_text("its clock is wrong")
    operator.goto(f"{console.url}/console/labs?status=stale")
    row = operator.locator("#list tbody tr", has_text="its clock is wrong")
    expect(row.locator(".state")).to_have_text("quarantined")
    row.get_by_role("link").click()
    operator.get_by_role("button", name="Restore").click()
    confirm(operator)
    expect(operator.locator(".state.available")).to_be_visible()


def test_a_deletion_that_failed_is_tried_again(
    operator: Page, console: ServerProcess, away: str
) -> None:
    operator.goto(path_of_free(console))
    operator.get_by_label("Reason to quarantine").fill("no network")
    operator.get_by_role("button", name="Quarantine").click()
    confirm(operator)
    operator.get_by_role("button", name="Release").click()
    confirm(operator)
    expect(operator.locator(".state.pending_deletion")).to_be_visible()
    run_job(console, "cleanup").raise_for_status()
    expect(operator.locator(".state.deletion_failed")).to_be_visible()
    set_outage(away, "none")
    operator.get_by_role("button", name="Retry deletion").click()
    confirm(operator)
    expect(operator.locator(".state.pending_deletion")).to_be_visible()
    run_job(console, "cleanup").raise_for_status()
    expect(operator.get_by_role("heading", name="A deleted sandbox")).to_be_visible()


def test_an_open_circuit_is_told_and_closes_when_the_provider_is_back(
    operator: Page, console: ServerProcess, away: str
) -> None:
    operator.goto(f"{console.url}/console/labs/jobs")
    open_circuit(console)
    operator.get_by_role("button", name="Run now: sync").click()
    expect(operator.locator("#alerts")).to_contain_text("PROVIDER_CIRCUIT_OPEN")
    with operator.expect_response(lambda answer: "hx-request" in answer.request.headers):
        lease(console, "refreshes-1")  # a live refresh leaves the alert where it is
    expect(operator.locator("#alerts")).to_contain_text("PROVIDER_CIRCUIT_OPEN")
    operator.reload()
    expect(operator.locator("#provider .state.failed")).to_have_text("not called")
    expect(operator.locator("#provider")).to_contain_text("The circuit breaker is open since")
    operator.goto(f"{console.url}/console/labs")
    expect(operator.locator("#pool .state.failed")).to_have_text("not called")
    operator.goto(f"{console.url}/console/labs/jobs")
    expect(operator.locator("#provider .state.failed")).to_be_visible()
    set_outage(away, "none")
    comes_back(operator)
    operator.reload()
    expect(operator.locator("#provider .state.ok")).to_have_text("reachable")


def comes_back(operator: Page) -> None:
    """Once the circuit lets a call through again."""
    sync = operator.get_by_role("button", name="Run now: sync")
    listed = operator.locator("#job-result dt:text-is('listed')")
    for _ in range(60):
        with operator.expect_response(lambda answer: answer.url.endswith("/jobs/sync")):
            sync.click()
        if listed.count():
            return
        operator.wait_for_timeout(200)
    expect(listed).to_be_visible()
