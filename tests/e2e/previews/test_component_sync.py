"""`<sandbox-status>` asks for a new preview once somebody is active, and not before."""

from datetime import timedelta

import anyio
import pytest
from playwright.async_api import expect

from tests.e2e.previews.tab import MINUTE, PROJECT, Tab, comes_true, is_in, shows, stays_true
from tests.support.previews.page_server import START, Project, Refusal

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
