"""A Vite project is previewed at E2B, which is another server of ours: the same walk as here."""

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, expect, sync_playwright

from tests.e2e.e2b_api.conftest import e2b_key
from tests.e2e.previews.tab import ARGUMENTS
from tests.e2e.previews.test_applications import FILES, PACKAGE, phase, project_of, push
from tests.support.servers.processes import sandyard_serve
from tests.support.servers.users import Person, signed_up, until
from tests.support.services.package_indexes import (
    NETWORK,
    PackageIndex,
    installed_packages,
    package_index,
)


@dataclass(frozen=True)
class Site:
    ann: Person
    machines: Person
    """The account whose sandboxes the previews are."""
    index: PackageIndex


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two servers: one with the previews, and the one that is its E2B."""
    with package_index(wheels={}, packages=installed_packages("vite@6")) as index:
        there = {
            "PARTS": "platform",
            "SANDBOX_EGRESS_NETWORKS": NETWORK,
            "SANDBOX_NPM_REGISTRY": index.npm_registry,
        }
        with sandyard_serve(tmp_path_factory.mktemp("there") / "data", environment=there) as e2b:
            machines = signed_up(e2b, "eve", mail=1)
            here = {
                "PARTS": "platform,previews",
                "PREVIEW_PROVIDER": "e2b",
                "E2B_API_KEY": e2b_key(machines),
                "E2B_API_URL": f"{e2b.url}/e2b",
                "E2B_SANDBOX_URL": f"{e2b.url}/e2b",
            }
            folder = tmp_path_factory.mktemp("here") / "data"
            with sandyard_serve(folder, environment=here) as server:
                yield Site(signed_up(server, "ann", mail=1), machines, index)


@pytest.fixture
def page() -> Iterator[Page]:
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        yield browser.new_page()
        browser.close()


def running(machines: Person) -> list[str]:
    found = machines.call("GET", "/sandboxes?status=running")["sandboxes"]
    return [each["sandbox_id"] for each in found]


def shows(page: Page, link: str, text: str) -> Callable[[], bool]:
    """Whether a new visit shows it."""

    def visit() -> bool:
        try:
            page.goto(link, timeout=10_000)
            found = page.evaluate("document.getElementById('shown')?.textContent")
        except PlaywrightError:  # while the server restarts
            return False
        return bool(found == text)

    return visit


@pytest.mark.torture
def test_a_vite_project_walks_at_our_own_e2b(site: Site, page: Page) -> None:
    ann, project = site.ann, project_of(site.ann)
    registry = {".npmrc": f"registry={site.index.npm_registry}\n"}
    assert push(ann, project, FILES | registry) == "created"
    [machine] = running(site.machines)
    link = ann.call("GET", f"{project}/sandbox/status")["sandbox_info"]["preview_url"]
    page.goto(link)
    expect(page.locator("#shown")).to_have_text("one")  # the page before it reloads itself
    assert until(phase(ann, project, "running"))["kind"] == "vite"
    loaded_at = page.evaluate("window.loadedAt")

    assert push(ann, project, {"text.js": 'export const text = "two";\n'}) == "updated"
    expect(page.locator("#shown")).to_have_text("two")
    assert page.evaluate("window.loadedAt") == loaded_at, "seen without a reload"

    broken = PACKAGE | {"scripts": {"dev": "vite --config missing.js"}}
    assert push(ann, project, {"package.json": json.dumps(broken)}) == "installed"
    failed = until(phase(ann, project, "failed"))
    assert failed["exit_code"] == 1
    assert any("missing.js" in line for line in failed["last_lines"])
    page.goto(link)
    expect(page.locator("h1")).to_have_text("This preview does not run")
    looked = ann.call("POST", f"{project}/sandbox/look", {})
    assert looked["title"] == "This preview does not run"
    assert base64.b64decode(looked["screenshot"]).startswith(b"\x89PNG")

    assert push(ann, project, {"package.json": json.dumps(PACKAGE)}) == "installed"
    expect(page.locator("#shown")).to_have_text("two")

    more = json.dumps(PACKAGE | {"dependencies": {"nanoid": "*"}})
    text = 'import { nanoid } from "nanoid";\nexport const text = typeof nanoid;\n'
    assert push(ann, project, {"package.json": more, "text.js": text}) == "installed"
    until(shows(page, link, "function"), within_sec=120)

    first = ann.call("GET", f"{project}/versions")["versions"][-1]["version"]
    ann.call("POST", f"{project}/versions/{first}/restore", {})
    assert ann.call("POST", f"{project}/sync")["data"]["outcome"] == "installed"
    until(shows(page, link, "one"), within_sec=120)

    push(ann, project, {"dist/index.html": "<h1 id='built'>Built</h1>"})
    page.goto(ann.call("POST", f"{project}/publish", {"root": "dist"})["url"])
    expect(page.locator("#built")).to_have_text("Built")

    assert running(site.machines) == [machine]
    site.machines.call("DELETE", f"/sandboxes/{machine}")
    status = ann.call("GET", f"{project}/sandbox/status")
    assert (status["status"], status["action_required"]) == ("expired", "sync_needed")
    again = ann.call("POST", f"{project}/sync")["data"]
    assert again["outcome"] == "created"
    until(shows(page, again["sandbox_info"]["preview_url"], "one"), within_sec=120)
    assert len(running(site.machines)) == 1
    ann.call("DELETE", f"{project}/sandbox")
    assert running(site.machines) == []
