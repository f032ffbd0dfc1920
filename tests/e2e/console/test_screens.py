"""Every screen, with markup in every name: it is shown as text and nothing of it runs; wide and
light, narrow and dark, axe-core has nothing serious to say, and it fits into the window."""

from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest
from playwright.sync_api import Page

from tests.e2e.console.markup import FILE, NAME, QUOTES, URL, Marked
from tests.e2e.console.routes import forgotten_pages
from tests.e2e.console.watching import assert_nothing_ran, everything_shown
from tests.support.commands.screenshots import SCREENS as PICTURED
from tests.support.servers.processes import ServerProcess

AXE = Path(__file__).parents[3] / ".tools/axe/node_modules/axe-core/axe.min.js"
SERIOUS = {"serious", "critical"}
LABS, BOX, PROJECT = "/console/labs", "/console/sandboxes/{sandbox}", "/console/projects/{project}"
SCREENS = {
    "overview": {"/console": NAME[:64]},
    "pool": {
        LABS: NAME,
        f"{LABS}?status=stale&name={quote(NAME)}": NAME,
        f"{LABS}/sandboxes/{{leased}}": NAME,
        f"{LABS}/tracks/t": NAME,
        f"{LABS}/waiting": NAME,
    },
    "labs": {
        f"{LABS}/reservations": NAME,
        f"{LABS}/jobs": "",
        f"/console/{quote(NAME, safe='')}": "",
    },
    "sandboxes": {
        f"/console/sandboxes?q={quote(QUOTES)}": NAME[:100],
        "/console/sandboxes/new": NAME[:100],
        BOX: NAME,
        f"{BOX}/files": FILE,
        f"{BOX}/terminal": NAME[:100],
        f"{BOX}/settings": NAME[:100],
        "/console/templates": NAME[:100],
        "/console/templates/{template}": NAME[:100],
        "/console/volumes": "",
    },
    "projects": {
        "/console/projects": NAME[:100],
        PROJECT: NAME,
        f"{PROJECT}/settings": NAME[:100],
        f"{PROJECT}/versions?version=1": NAME[:100],
    },
    "devices": {"/console/devices": NAME, "/console/devices/{device}": NAME[:64]},
    "account": {"/console/account": NAME, f"/console/account/events?kind={quote(NAME)}": ""},
    "admin": {
        f"/console/admin?q={quote(QUOTES)}": "",
        f"/console/admin/events?part=broker&subject={quote(NAME)}": "",
        "/console/admin/events?part=broker": NAME,
        "/console/admin/integrations": URL,
        "/console/admin/integrations/clients/marked": "",
        "/console/admin/integrations/webhooks/{webhook}": URL,
    },
}
"""Of each part: the path, and what must be seen there."""
FIRST_PAGES = ("/console/login", "/console/signup")
Theme = Literal["light", "dark"]
HIDDEN = """() => [...document.querySelectorAll("main button, main .button, main td a")]
    .filter((each) => each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 1)
    .map((each) => each.outerHTML.slice(0, 120))"""
"""Actions and links that can only be reached by scrolling to the side."""
VIEWS: list[tuple[int, Theme]] = [(1280, "light"), (375, "dark")]


@pytest.mark.parametrize("part", SCREENS)
def test_a_screen_shows_names_as_they_are_and_can_be_used_by_everybody(
    watched: Page, console: ServerProcess, marked: Marked, part: str
) -> None:
    found: list[str] = []
    for path, expected in SCREENS[part].items():
        watched.set_viewport_size({"width": 1280, "height": 800})
        watched.goto(console.url + path.format_map(vars(marked)))
        assert expected in everything_shown(watched), path
        assert_nothing_ran(watched)
        found += troubles(watched)
    assert found == []


def test_no_page_is_forgotten() -> None:
    """Neither here nor by `make screenshots`."""
    listed = [path for part in SCREENS.values() for path in part]
    assert forgotten_pages([*listed, *FIRST_PAGES]) == set()
    assert forgotten_pages([*PICTURED.values(), *FIRST_PAGES]) == set()
    assert forgotten_pages([]) > {"/console/labs/jobs", "/console/signup"}


@pytest.mark.parametrize("path", FIRST_PAGES)
def test_login_and_signup_pages_are_accessible_without_a_login(
    page: Page, console: ServerProcess, path: str
) -> None:
    page.goto(console.url + path)
    assert troubles(page) == []


def troubles(page: Page) -> list[str]:
    """Of the page that is open, in each view."""
    page.evaluate(AXE.read_text() + "; null")
    found: list[str] = []
    for width, theme in VIEWS:
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 800})
        found += [f"{width} px, {theme}: {each}" for each in _findings(page)]
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            found.append(f"{page.url} is wider than {width} px")
        found += [
            f"{page.url} at {width} px: out of sight: {each}" for each in page.evaluate(HIDDEN)
        ]
    return found


def _findings(page: Page) -> list[str]:
    options = {"resultTypes": ["violations"], "preload": False}
    found: dict[str, Any] = page.evaluate("(options) => axe.run(options)", options)
    return [
        f"{page.url}: {each['id']}: {each['help']}: {each['nodes'][0]['html']}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
    ]
