"""`<sandbox-status>` in a real browser, under the pages' own security policy: what it shows."""

import asyncio
import base64
import json
from datetime import datetime, timedelta

import anyio
import pytest
from playwright.async_api import expect

from tests.e2e.previews.tab import (
    MINUTE,
    PROJECT,
    QUIET_SEC,
    Tab,
    comes_true,
    comes_true_in_page,
    is_in,
    shows,
    stays_true,
)
from tests.support.previews.page_server import START, PreviewServer, Project


def token_until(end: datetime, *scopes: str) -> str:
    """As the server makes them; nobody checks the signature here."""
    claims = {"sub": PROJECT, "scp": scopes, "exp": int(end.timestamp())}
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"sat-e30.{body}.x"


pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestShows:
    async def test_counts_down_each_second(self, tab: Tab, running: Project) -> None:
        element = await tab.add_element()
        await shows(element, "state", "Running")
        await shows(element, "countdown", "30:00 left")
        await tab.pass_time(1)
        await shows(element, "countdown", "29:59 left")
        await tab.pass_time(9)
        await shows(element, "countdown", "29:50 left")
        assert running.checks == 1

    async def test_counts_by_the_servers_clock(self, tab: Tab, running: Project) -> None:
        tab.server.now -= 10 * MINUTE
        tab.server.renew(running, 5 * MINUTE)
        await shows(await tab.add_element(), "countdown", "5:00 left")

    async def test_shows_text_as_text_and_opens_web_addresses_only(
        self, tab: Tab, running: Project
    ) -> None:
        running.message = "<img src=x onerror=alert(1)>"
        running.preview_url = "javascript:alert(1)"
        element = await tab.add_element()
        await shows(element, "message", running.message)
        assert await element.locator("img").count() == 0
        await expect(element.locator("[part=link]")).to_be_hidden()

    async def test_a_private_preview_is_opened_by_its_link_alone(
        self, tab: Tab, running: Project
    ) -> None:
        running.preview_url = f"http://8080-{PROJECT}.localhost:8080/"
        element = await tab.add_element()
        await is_in(element, "running")
        await expect(element.locator("[part=link]")).to_be_hidden()
        opens = f"{running.preview_url}?token=1"
        await element.evaluate(f"(element) => {{ element.previewLink = '{opens}'; }}")
        await expect(element.locator("[part=link]")).to_have_attribute("href", opens)

    async def test_a_token_opens_a_private_preview_and_is_renewed_before_it_ends(
        self, tab: Tab, running: Project
    ) -> None:
        running.preview_url = f"http://8080-{PROJECT}.localhost:8080/"
        element = await tab.add_element()
        token = token_until(START + 10 * MINUTE, "view", "status")
        await element.evaluate(f"(element) => {{ element.token = '{token}'; }}")
        link = f"{running.preview_url}?sandyard_token={token}"
        await expect(element.locator("[part=link]")).to_have_attribute("href", link)
        await tab.pass_time(9 * 60 + 1)
        [heard] = await tab.page.evaluate("told.filter(([name]) => name.includes('expiring'))")
        assert heard[0] == "sandbox-token-expiring"
        renewed = token_until(START + 20 * MINUTE, "status")
        await element.evaluate(f"(element) => {{ element.token = '{renewed}'; }}")
        await shows(element, "state", "Running")  # nothing is forgotten meanwhile
        await comes_true(lambda: running.credentials[-1][0] == f"Bearer {renewed}")
        await expect(element.locator("[part=link]")).to_be_hidden()

    async def test_shows_what_it_installs_every_other_second_until_it_runs(
        self, tab: Tab, running: Project
    ) -> None:
        lines = [f"line {number}" for number in range(20)]
        running.application = {"phase": "installing", "last_lines": lines}
        element = await tab.add_element()
        await shows(element, "state", "Installing packages…")
        await shows(element, "lines", "\n".join(lines[8:]))
        running.application = {"phase": "failed", "last_lines": ["no such package"]}
        await tab.pass_time(2)
        await shows(element, "state", "Does not run")
        await shows(element, "lines", "no such package")
        running.application = {"phase": "running", "last_lines": []}
        await tab.pass_time(60)
        await shows(element, "state", "Running")
        await expect(element.locator("[part=lines]")).to_be_hidden()

    async def test_speaks_changes_but_not_every_second(self, tab: Tab, running: Project) -> None:
        element = await tab.add_element()
        spoken = element.get_by_role("status")
        await expect(spoken).to_have_text("Running, The preview is running.")
        await tab.pass_time(1)
        await expect(spoken).to_have_text("Running, The preview is running.")
        assert running.checks == 1
        await tab.pass_time(25 * 60)
        await expect(spoken).to_have_text(
            "Running, 5 minutes left or less, The preview is running."
        )

    async def test_heeds_dark_and_reduced_motion(self, tab: Tab, running: Project) -> None:
        element = await tab.add_element()
        await is_in(element, "running")
        colour = "getComputedStyle(element.shadowRoot.querySelector('[part=state]')).color"
        motion = "getComputedStyle(element.shadowRoot.querySelector('[part=dot]')).animationName"
        light = await element.evaluate(f"(element) => {colour}")
        running.held = anyio.Event()
        await tab.pass_time(60)
        await comes_true_in_page(element, f"{motion} === 'breathe'")
        await tab.page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        await comes_true_in_page(element, f"{motion} === 'none'")
        assert await element.evaluate(f"(element) => {colour}") != light
        running.held.set()


class TestPolls:
    @pytest.mark.parametrize(("attributes", "seconds"), [({}, 60), ({"interval": "7"}, 7)])
    async def test_polls_at_its_interval(
        self, tab: Tab, running: Project, attributes: dict[str, str], seconds: int
    ) -> None:
        await tab.add_element(**attributes)
        for polls in range(1, 4):
            await tab.has_heard(polls)
            await tab.pass_time(seconds - 1)
            await asyncio.sleep(QUIET_SEC)
            assert running.checks == polls
            await tab.pass_time(1)
        await tab.has_heard(4)

    async def test_asks_when_the_end_has_come_and_stops_there(
        self, tab: Tab, server: PreviewServer
    ) -> None:
        project = server.add(PROJECT, runs_for=timedelta(seconds=20))
        element = await tab.add_element()
        await is_in(element, "running")
        await tab.pass_time(21)
        await is_in(element, "expired")
        await shows(element, "state", "Ended")
        await tab.pass_minutes(10)
        assert (project.checks, project.syncs) == (2, 0)

    async def test_stops_when_there_is_none(self, tab: Tab, server: PreviewServer) -> None:
        project = server.add(PROJECT)
        element = await tab.add_element()
        await shows(element, "state", "Not started")
        await tab.pass_minutes(5)
        assert (project.checks, project.syncs) == (1, 0)

    async def test_has_one_request_in_flight(self, tab: Tab, running: Project) -> None:
        element = await tab.add_element()
        await is_in(element, "running")
        running.held = anyio.Event()
        await tab.pass_time(60)
        await comes_true(lambda: running.checks == 2)
        await tab.hide()
        await tab.unhide()
        await element.evaluate("(element) => { element.check(); }")
        await stays_true(lambda: running.most_in_flight == 1 and running.checks == 2)
        running.held.set()

    async def test_gives_up_on_a_request_that_hangs(self, tab: Tab, running: Project) -> None:
        running.held = anyio.Event()
        element = await tab.add_element()
        await comes_true(lambda: running.checks == 1)
        await tab.pass_time(31)
        await is_in(element, "stale")
        running.held.set()
        running.held = None
        await tab.pass_time(7)
        await is_in(element, "running")

    async def test_removed_it_stops_and_put_back_it_goes_on(
        self, tab: Tab, running: Project
    ) -> None:
        element = await tab.add_element()
        await is_in(element, "running")
        running.held = anyio.Event()
        await tab.pass_time(60)
        await comes_true(lambda: running.checks == 2)
        async with tab.page.expect_event("requestfailed"):
            await tab.page.evaluate(
                "globalThis.kept = document.querySelector('sandbox-status'); kept.remove()"
            )
        running.held.set()
        running.held = None
        await tab.pass_minutes(5)
        await tab.move_mouse()
        assert (running.checks, running.syncs) == (2, 0)
        await tab.page.evaluate("document.querySelector('main').append(kept)")
        await comes_true(lambda: running.checks == 3)
        await shows(element, "countdown", "24:00 left")

    async def test_two_on_one_page_go_their_own_ways(self, tab: Tab, running: Project) -> None:
        other = tab.server.add("prj-other", runs_for=MINUTE / 2)
        one, two = await tab.add_element(), await tab.add_element("prj-other")
        await is_in(one, "running")
        await is_in(two, "running")
        await tab.pass_time(31)
        await is_in(two, "expired")
        await tab.pass_time(60)
        await comes_true(lambda: running.checks == 2)
        await shows(one, "countdown", "28:29 left")
        await tab.move_mouse()
        await shows(two, "countdown", "30:00 left")
        assert (running.syncs, other.syncs) == (0, 1)
