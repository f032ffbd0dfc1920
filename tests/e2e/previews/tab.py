"""A page in a real browser whose clock stands still but for `Tab.pass_time`."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from playwright.async_api import Locator, Page, expect

from tests.support.previews.page_server import PreviewServer

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
                const names = ["status", "synced", "unauthorized", "token-expiring"];
                for (const name of names.map((each) => `sandbox-${each}`)) {
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


async def comes_true(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
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
    deadline = time.monotonic() + 30
    while not await element.evaluate(f"(element) => {what}"):
        assert time.monotonic() < deadline, f"never true: {what}"
        await asyncio.sleep(0.01)
