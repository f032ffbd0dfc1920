"""`<sandbox-status>` and the demo page in a real browser, under the pages' own security policy.

The page's clock and the server's stand still but for `Tab.pass_time`: no test waits for them.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import anyio
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, async_playwright, expect

from tests.preview_page_server import START, PreviewServer, Project, Refusal, preview_page_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROJECT = "prj-0123456789abcdefg"
MINUTE = timedelta(minutes=1)
HALF_HOUR = timedelta(minutes=30)
QUIET_SEC = 0.15
"""How long a test watches for a request that must not come."""
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
]
VISIBILITY = """
Object.defineProperty(Document.prototype, "visibilityState", {
  get() { return globalThis.isTabHidden ? "hidden" : "visible"; },
});
"""


@dataclass
class Tab:
    """A page whose time passes when told, and what its console complains about."""

    page: Page
    server: PreviewServer
    complaints: list[str] = field(default_factory=list)

    async def add_element(self, project: str = PROJECT, **attributes: str) -> Locator:
        await self.page.evaluate(
            """([project, attributes]) => {
                const element = document.createElement("sandbox-status");
                element.setAttribute("project-id", project);
                for (const [name, value] of Object.entries(attributes)) {
                    element.setAttribute(name.replace("_", "-"), value);
                }
                globalThis.told ??= [];
                for (const name of ["sandbox-status", "sandbox-synced"]) {
                    element.addEventListener(name, (event) => told.push([name, event.detail]));
                }
                document.querySelector("main").append(element);
            }""",
            [project, attributes],
        )
        return self.page.locator(f"sandbox-status[project-id={project}]")

    async def pass_time(self, seconds: float) -> None:
        """As if the computer had slept: every timer that is due fires once."""
        self.server.now += timedelta(seconds=seconds)
        await self.page.clock.fast_forward(round(seconds * 1000))

    async def pass_minutes(self, minutes: int) -> None:
        for _ in range(minutes):
            await self.pass_time(60)
            await asyncio.sleep(QUIET_SEC / 3)

    async def has_heard(self, answers: int) -> None:
        """Wait until the page has taken in so many answers."""
        root = self.page.locator("html")
        await comes_true_in_page(root, f"told.length === {answers}")

    async def hide(self) -> None:
        await self.page.evaluate("globalThis.isTabHidden = true")
        await self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    async def unhide(self) -> None:
        await self.page.evaluate("globalThis.isTabHidden = false")
        await self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    async def move_mouse(self, x: float = 40) -> None:
        await self.page.mouse.move(x, 300)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def only_server() -> AsyncIterator[PreviewServer]:
    async with preview_page_server() as server:
        yield server


@pytest.fixture
def server(only_server: PreviewServer) -> Iterator[PreviewServer]:
    only_server.now = START
    only_server.projects.clear()
    yield only_server
    only_server.release()


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: Browser, server: PreviewServer) -> AsyncIterator[Tab]:
    """On an empty page; it must end without a complaint, but for answers that are errors."""
    context = await browser.new_context(viewport={"width": 1100, "height": 700})
    tab = Tab(await context.new_page(), server)
    tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.page.on(
        "console",
        lambda said: (
            tab.complaints.append(said.text)
            if said.type in ("error", "warning") and "Failed to load resource" not in said.text
            else None
        ),
    )
    await tab.page.add_init_script(VISIBILITY)
    await tab.page.clock.install(time=START - MINUTE)
    await tab.page.goto(f"{server.url}/bare")
    await tab.page.clock.pause_at(START)
    yield tab
    await context.close()
    assert tab.complaints == []


@pytest.fixture
def running(server: PreviewServer) -> Project:
    return server.add(PROJECT, runs_for=HALF_HOUR)


async def comes_true(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not what():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.01)


async def stays_true(what: Callable[[], bool]) -> None:
    await asyncio.sleep(QUIET_SEC)
    assert what()


async def shows(element: Locator, part: str, text: str) -> None:
    await expect(element.locator(f"[part={part}]")).to_have_text(text)


async def is_in(element: Locator, state: str) -> None:
    await comes_true_in_page(element, f"element.matches(':state({state})')")


async def comes_true_in_page(element: Locator, what: str) -> None:
    deadline = time.monotonic() + 5
    while not await element.evaluate(f"(element) => {what}"):
        assert time.monotonic() < deadline, f"never true: {what}"
        await asyncio.sleep(0.01)


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


class TestSyncs:
    @pytest.mark.parametrize("activity", ["mouse", "key"])
    async def test_syncs_once_the_person_is_active(self, tab: Tab, activity: str) -> None:
        project = tab.server.add(PROJECT, runs_for=MINUTE / 2)
        element = await tab.add_element()
        await is_in(element, "running")
        await tab.pass_time(31)
        await is_in(element, "expired")
        await stays_true(lambda: project.syncs == 0)
        await (tab.move_mouse() if activity == "mouse" else tab.page.keyboard.press("Shift"))
        await is_in(element, "running")
        await shows(element, "countdown", "30:00 left")
        assert (project.syncs, project.sandboxes) == (1, 2)
        told = await tab.page.evaluate("told")
        assert [name for name, _ in told] == ["sandbox-status", "sandbox-status", "sandbox-synced"]
        assert told[1][1]["status"] == "expired"
        assert told[2][1] == tab.server.synced(project)
        await tab.pass_time(60)
        await comes_true(lambda: project.checks == 3)

    @pytest.mark.parametrize(("idle_sec", "syncs"), [(60, 1), (61, 0)])
    async def test_activity_counts_for_a_minute(self, tab: Tab, idle_sec: int, syncs: int) -> None:
        project = tab.server.add(PROJECT, runs_for=timedelta(seconds=idle_sec - 1))
        element = await tab.add_element(interval="90")
        await is_in(element, "running")
        await tab.move_mouse()
        await tab.pass_time(idle_sec)
        await tab.has_heard(2 + syncs)
        await is_in(element, "running" if syncs else "expired")
        await stays_true(lambda: project.syncs == syncs)

    async def test_the_time_that_counts_can_be_set(self, tab: Tab) -> None:
        project = tab.server.add(PROJECT, runs_for=timedelta(seconds=10))
        element = await tab.add_element(active_within="5")
        await is_in(element, "running")
        await tab.move_mouse()
        await tab.pass_time(11)
        await is_in(element, "expired")
        await stays_true(lambda: project.syncs == 0)

    async def test_neither_a_script_nor_a_resting_mouse_is_a_person(self, tab: Tab) -> None:
        project = tab.server.add(PROJECT, runs_for=MINUTE / 2)
        element = await tab.add_element()
        await is_in(element, "running")
        await tab.move_mouse(40)
        await tab.pass_time(91)
        await is_in(element, "expired")
        await tab.page.evaluate("window.dispatchEvent(new PointerEvent('pointerdown'))")
        await tab.move_mouse(40)
        await stays_true(lambda: project.syncs == 0)
        await tab.move_mouse(41)
        await is_in(element, "running")

    async def test_a_hidden_tab_neither_polls_nor_syncs(self, tab: Tab, running: Project) -> None:
        element = await tab.add_element()
        await is_in(element, "running")
        await tab.hide()
        await tab.pass_minutes(31)
        await tab.move_mouse()
        await tab.page.keyboard.press("Shift")
        await element.evaluate("(element) => { element.sync(); }")
        await stays_true(lambda: (running.checks, running.syncs) == (1, 0))
        await tab.pass_time(120)
        await tab.unhide()
        await is_in(element, "expired")
        await stays_true(lambda: (running.checks, running.syncs) == (2, 0))
        await tab.move_mouse(41)
        await is_in(element, "running")
        assert running.sandboxes == 2

    async def test_an_end_that_is_learned_while_hidden_makes_nothing(
        self, tab: Tab, running: Project
    ) -> None:
        element = await tab.add_element()
        await is_in(element, "running")
        await tab.move_mouse()
        running.held, running.ends_at = anyio.Event(), START
        await tab.pass_time(60)
        await comes_true(lambda: running.checks == 2)
        await tab.hide()
        running.held.set()
        await is_in(element, "expired")
        await stays_true(lambda: running.syncs == 0)

    async def test_the_button_syncs_by_key_and_hands_on_the_focus(self, tab: Tab) -> None:
        project = tab.server.add(PROJECT)
        project.syncs_meet = Refusal(409, "QUOTA_EXCEEDED", "Five previews run. End one first.")
        element = await tab.add_element()
        await expect(element.get_by_role("button", name="Sync now")).to_be_visible()
        await tab.page.keyboard.press("Tab")
        await shows(element, "message", "Five previews run. End one first.")
        await tab.move_mouse()
        await tab.pass_minutes(3)
        assert project.syncs == 1, "what was refused is not asked again by itself"
        project.syncs_meet = None
        await tab.page.keyboard.press("Enter")
        await is_in(element, "running")
        await expect(element.get_by_role("button")).to_be_hidden()
        await expect(element.get_by_role("link", name="Open preview")).to_be_focused()


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
