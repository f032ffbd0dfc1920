"""Every screen, wide and narrow, light and dark: axe-core has nothing serious to say, and nothing
is wider than the window."""

from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.console.conftest import log_in
from tests.e2e.console.people import ADMIN
from tests.servers import ServerProcess

AXE = Path(__file__).parents[3] / ".tools/axe/node_modules/axe-core/axe.min.js"
SCREENS = [
    *("/console/labs/reservations", "/console/labs/waiting", "/console/labs/jobs"),
    "/console/admin/integrations",
    *("/console", "/console/labs", "/console/sandboxes", "/console/sandboxes/new"),
    *("/console/projects", "/console/devices", "/console/account", "/console/account/events"),
    *("/console/admin", "/console/admin/events"),
]
SERIOUS = {"serious", "critical"}


def findings(page: Page) -> list[str]:
    page.add_script_tag(content=AXE.read_text())
    found: dict[str, Any] = page.evaluate("axe.run()")
    return [
        f"{page.url}: {each['id']}: {each['help']}: {each['nodes'][0]['html']}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
    ]


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (375, "dark")])
def test_every_screen_can_be_used_by_everybody(
    browser: Browser, console: ServerProcess, width: int, theme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=theme, bypass_csp=True
    )
    page = context.new_page()
    page.goto(f"{console.url}/console/login")
    found = findings(page)
    log_in(page, console, ADMIN)
    page.get_by_role("heading", name="Overview").wait_for()
    for path in SCREENS:
        page.goto(console.url + path)
        page.locator("main h1").wait_for()
        found += findings(page)
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            found.append(f"{path} is wider than {width} px")
    context.close()
    assert found == []
