"""Next, Flask and files through the gateway in a browser: edited, broken, mended, expired."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, expect

from tests.e2e.previews.test_applications import phase, push
from tests.support.servers.processes import ServerProcess, sandyard_serve
from tests.support.servers.users import Person, signed_up, until
from tests.support.services.package_indexes import (
    NETWORK,
    downloaded_wheels,
    installed_packages,
    package_index,
)

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1200)]

NEXT = {
    "private": True,
    "scripts": {"dev": "next dev", "build": "next build", "start": "next start"},
    "dependencies": {"next": "^15", "react": "^19", "react-dom": "^19"},
}
LAYOUT = "export default ({ children }) => <html><body>{children}</body></html>;\n"


@dataclass(frozen=True)
class Walk:
    kind: str
    files: dict[str, str]
    edited: str
    """The file that has the word `one`."""
    broken: str
    """What it is replaced by, and what the browser then shows."""
    shows: str
    reloads: bool = True
    """Whether an edit needs a visit to be seen."""


WALKS = (
    Walk(
        "next",
        {
            "package.json": json.dumps(NEXT),
            "app/layout.js": LAYOUT,
            "app/page.js": 'export default () => <b id="shown">one</b>;\n',
        },
        "app/page.js",
        "export default () => { throw new Error('broken here'); };\n",
        "broken here",
        reloads=False,
    ),
    Walk(
        "flask",
        {
            "requirements.txt": "flask\n",
            "app.py": "from flask import Flask\n\napp = Flask(__name__)\n\n\n"
            "@app.get('/')\ndef start():\n    return '<b id=shown>one</b>'\n",
        },
        "app.py",
        "from flask import Flask\n\napp = Flask(__name__)\n\n\n"
        "@app.get('/')\ndef start():\n    raise RuntimeError('broken here')\n",
        "broken here",
    ),
    Walk(
        "static", {"index.html": "<b id=shown>one</b>"}, "index.html", "broken here", "broken here"
    ),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    packages = installed_packages("next@15", "react@19", "react-dom@19")
    with package_index(wheels=downloaded_wheels("flask"), packages=packages) as index:
        environment = {
            "SANDBOX_EGRESS_NETWORKS": NETWORK,
            "SANDBOX_NPM_REGISTRY": index.npm_registry,
            "SANDBOX_PIP_INDEX_URL": index.pip_index_url,
            "PREVIEW_MEMORY_GB": "3",
            "PREVIEW_STORAGE_GB": "2",
            "PREVIEW_TTL_MINUTES": "6",
        }
        folder = tmp_path_factory.mktemp("walks") / "data"
        with sandyard_serve(folder, environment=environment) as made:
            yield made


@pytest.fixture(scope="module")
def ann(server: ServerProcess) -> Person:
    return signed_up(server, "ann", mail=1)


def shows(page: Page, text: str, *, reloads: bool) -> None:
    """In the page that is open, or on a new visit."""

    def is_shown() -> bool:
        try:
            if reloads:
                page.reload(timeout=20_000)
            overlay = "document.querySelector('nextjs-portal')?.shadowRoot?.textContent ?? ''"
            return text in page.evaluate(f"document.body.textContent + {overlay}")
        except PlaywrightError:  # while the page reloads itself
            return False

    until(is_shown, within_sec=180)


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.kind)
def test_a_project_is_edited_broken_mended_and_brought_back(
    ann: Person, page: Page, walk: Walk
) -> None:
    made = ann.call("POST", "/projects", {"name": walk.kind}, expect=201)
    project = f"/projects/{made['project_id']}"
    assert push(ann, project, walk.files) == "created"
    link = ann.call("POST", f"{project}/tokens", {}, expect=201)["url"]
    page.goto(link)
    expect(page.locator("#shown")).to_have_text("one", timeout=300_000)
    assert until(phase(ann, project, "running"))["kind"] == walk.kind

    two = walk.files[walk.edited].replace("one", "two")
    assert push(ann, project, {walk.edited: two}) == "updated"
    shows(page, "two", reloads=walk.reloads)
    assert push(ann, project, {walk.edited: walk.broken}) == "updated"
    shows(page, walk.shows, reloads=walk.reloads)
    look: dict[str, Any] = ann.call("POST", f"{project}/sandbox/look", {})
    assert look["screenshot"]
    assert push(ann, project, {walk.edited: two}) == "updated"
    shows(page, "two", reloads=True)

    def status() -> Any:
        return ann.call("GET", f"{project}/sandbox/status")["status"]

    until(lambda: status() == "expired", within_sec=420)
    assert ann.call("POST", f"{project}/sync")["data"]["outcome"] == "created"
    page.goto(ann.call("POST", f"{project}/tokens", {}, expect=201)["url"])
    expect(page.locator("#shown")).to_have_text("two", timeout=300_000)
    ann.call("DELETE", f"{project}/sandbox")
