"""`<sandbox-status>` when the server is away or refuses, its credentials, and the demo page."""

import pytest
from playwright.async_api import expect

from tests.e2e.previews.tab import (
    PROJECT,
    Tab,
    comes_true,
    comes_true_in_page,
    is_in,
    shows,
    stays_true,
)
from tests.support.previews.page_server import Project, Refusal

pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestTrouble:
    async def test_unknown_keeps_the_last_state_and_never_syncs(
        self, tab: Tab, running: Project
    ) -> None:
        element = await tab.add_element()
        await is_in(element, "running")
        running.is_unknown = True
        await tab.pass_time(60)
        await is_in(element, "stale")
        for minute in range(10):
            await tab.move_mouse(50 + minute)
            await tab.pass_minutes(1)
        await shows(element, "state", "Running")
        await shows(element, "stale", "last known")
        await shows(element, "message", "The provider does not answer.")
        await shows(element, "countdown", "19:00 left")
        assert running.syncs == 0
        assert 4 <= running.checks <= 8, "it asks again, ever more seldom"
        running.is_unknown = False
        await tab.pass_time(301)
        await comes_true_in_page(element, "!element.stale")
        assert (await tab.page.evaluate("told"))[1][1]["action_required"] == "retry_later"

    async def test_an_ended_one_in_trouble_is_not_synced_either(self, tab: Tab) -> None:
        project = tab.server.add(PROJECT)
        element = await tab.add_element()
        await is_in(element, "not_found")
        project.checks_meet = Refusal(503, "UNAVAILABLE", "The database is away.")
        await tab.hide()
        await tab.unhide()
        await is_in(element, "stale")
        await tab.move_mouse()
        await expect(element.get_by_role("button")).to_be_hidden()
        await stays_true(lambda: project.syncs == 0)

    async def test_an_expired_token_is_an_event_and_nothing_is_asked_until_a_new_one(
        self, tab: Tab, running: Project
    ) -> None:
        element = await tab.add_element()
        await is_in(element, "running")
        running.checks_meet = Refusal(401, "INVALID_TOKEN", "The token has expired.")
        await tab.pass_time(60)
        await tab.has_heard(2)
        expected = ["sandbox-unauthorized", {"message": "The token has expired."}]
        assert (await tab.page.evaluate("told"))[1] == expected
        checks = running.checks
        await tab.pass_minutes(3)
        assert running.checks == checks
        running.checks_meet = None
        await element.evaluate("(element) => { element.token = 'a-new-one'; }")
        await tab.has_heard(3)

    async def test_what_the_server_marks_as_stale_is_shown_so(
        self, tab: Tab, running: Project
    ) -> None:
        running.is_stale = True
        await shows(await tab.add_element(), "stale", "last known")

    async def test_comes_back_when_the_network_does(self, tab: Tab, running: Project) -> None:
        element = await tab.add_element()
        await is_in(element, "running")
        await tab.page.context.set_offline(True)
        await tab.pass_time(60)
        await is_in(element, "stale")
        await is_in(element, "running")
        await tab.page.context.set_offline(False)
        await comes_true_in_page(element, "!element.stale")
        assert running.checks == 2

    @pytest.mark.parametrize("seconds", [3, 600])
    async def test_waits_as_long_as_a_429_says(
        self, tab: Tab, running: Project, seconds: int
    ) -> None:
        running.checks_meet = Refusal(429, "RATE_LIMIT_EXCEEDED", retry_after=seconds)
        element = await tab.add_element()
        await is_in(element, "stale")
        running.checks_meet = None
        await tab.pass_time(seconds - 1)
        await stays_true(lambda: running.checks == 1)
        await tab.pass_time(1)
        await is_in(element, "running")

    async def test_coming_back_to_the_tab_does_not_shorten_that(
        self, tab: Tab, running: Project
    ) -> None:
        running.checks_meet = Refusal(429, "RATE_LIMIT_EXCEEDED", retry_after=30)
        element = await tab.add_element()
        await is_in(element, "stale")
        running.checks_meet = None
        await tab.hide()
        await tab.pass_time(29)
        await tab.unhide()
        await stays_true(lambda: running.checks == 1)
        await tab.pass_time(1)
        await is_in(element, "running")

    async def test_a_sync_that_failed_is_preceded_by_a_check(self, tab: Tab) -> None:
        project = tab.server.add(PROJECT)
        project.syncs_meet = Refusal(503, "UNAVAILABLE", "The provider is away.", retry_after=20)
        element = await tab.add_element()
        await is_in(element, "not_found")
        await tab.move_mouse()
        await shows(element, "message", "The provider is away.")
        await tab.pass_time(19)
        await tab.move_mouse(41)
        await element.get_by_role("button").click(force=True)
        await stays_true(lambda: (project.checks, project.syncs) == (1, 1))
        tab.server.renew(project)
        await tab.pass_time(1)
        await is_in(element, "running")
        assert (project.checks, project.syncs, project.sandboxes) == (2, 1, 1)


class TestCredentials:
    async def test_the_token_is_sent_and_is_nowhere_in_the_page(
        self, tab: Tab, running: Project
    ) -> None:
        cookie = {"name": "session", "value": "c", "url": tab.server.url}
        await tab.page.context.add_cookies([cookie])  # type: ignore[list-item]
        element = await tab.add_element()
        await is_in(element, "running")
        await element.evaluate("(element) => { element.token = 'secret-1'; }")
        await comes_true(lambda: running.checks == 2)
        assert running.credentials == [(None, "session=c"), ("Bearer secret-1", None)]
        html = await element.evaluate("(e) => e.outerHTML + e.shadowRoot.innerHTML + e.token")
        assert "secret-1" not in html

    async def test_a_refused_token_is_not_tried_again_until_there_is_another(
        self, tab: Tab, running: Project
    ) -> None:
        running.checks_meet = Refusal(401, "UNAUTHORIZED", "Log in again.")
        element = await tab.add_element()
        await shows(element, "message", "Log in again.")
        await tab.pass_minutes(5)
        assert running.checks == 1
        running.checks_meet = None
        await element.evaluate("(element) => { element.token = 'secret-2'; }")
        await is_in(element, "running")


class TestDemoPage:
    async def test_shows_a_project_its_state_and_its_preview(
        self, tab: Tab, running: Project
    ) -> None:
        page = tab.page
        await page.goto(f"{tab.server.url}/previews/demo")
        await page.get_by_label("Project").fill(PROJECT)
        await page.get_by_label("Token").fill("secret-3")
        await page.get_by_role("button", name="Show").click()
        await expect(page.get_by_role("heading", name="Bakery")).to_be_visible()
        await shows(page.locator("sandbox-status"), "countdown", "30:00 left")
        preview = page.frame_locator("iframe")
        await expect(preview.get_by_text(f"Served from {running.sandbox_id}")).to_be_visible()
        assert running.credentials == [("Bearer secret-3", None)]
        kept = await page.evaluate(
            "[JSON.stringify(sessionStorage), localStorage.length, location.href]"
        )
        assert "secret-3" in kept[0]
        assert kept[1:] == [0, f"{tab.server.url}/previews/demo"]

        await tab.pass_time(31 * 60)
        await expect(page.get_by_text("to bring it back")).to_be_visible()
        await expect(page.locator("iframe")).to_be_hidden()
        await tab.move_mouse()
        await comes_true(lambda: running.sandboxes == 2)
        await expect(preview.get_by_text(f"Served from {running.sandbox_id}")).to_be_visible()

        await page.get_by_role("button", name="Forget").click()
        await expect(page.get_by_label("Token")).to_have_value("")
        assert await page.evaluate("sessionStorage.length") == 0
