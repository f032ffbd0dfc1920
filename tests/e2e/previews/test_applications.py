"""A preview runs the project's development server: seen in a browser, through the gateway."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, expect

from tests.e2e.cli.test_docs_lines import blocks, paste
from tests.support.servers.processes import ServerProcess, sandyard_serve
from tests.support.servers.users import Person, signed_up, until
from tests.support.services.package_indexes import (
    NETWORK,
    PackageIndex,
    installed_packages,
    package_index,
)

PACKAGE = {
    "name": "app",
    "private": True,
    "type": "module",
    "scripts": {"dev": "vite"},
    "devDependencies": {"vite": "^6"},
}
FILES = {
    "index.html": '<body><b id="shown"></b><script type="module" src="/main.js"></script></body>',
    "main.js": 'import { text } from "./text.js";\n'
    "const show = (text) => { document.getElementById('shown').textContent = text; };\n"
    "show(text);\nwindow.loadedAt ??= performance.timeOrigin;\n"
    'if (import.meta.hot) import.meta.hot.accept("./text.js", (module) => show(module.text));\n',
    "text.js": 'export const text = "one";\n',
    "package.json": json.dumps(PACKAGE),
}


@pytest.fixture(scope="module")
def index() -> Iterator[PackageIndex]:
    with package_index(wheels={}, packages=installed_packages("vite@6")) as index:
        yield index


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, index: PackageIndex
) -> Iterator[ServerProcess]:
    environment = {
        "SANDBOX_EGRESS_NETWORKS": NETWORK,
        "SANDBOX_NPM_REGISTRY": index.npm_registry,
        "PREVIEW_NETWORK": "packages",
        "PREVIEW_MEMORY_GB": "1.5",
        "PREVIEW_STORAGE_GB": "0.5",
    }
    with sandyard_serve(tmp_path_factory.mktemp("apps") / "data", environment=environment) as made:
        yield made


@pytest.fixture(scope="module")
def ann(server: ServerProcess) -> Person:
    return signed_up(server, "ann", mail=1)


def project_of(ann: Person) -> str:
    [project] = ann.call("GET", "/projects")["projects"]
    return f"/projects/{project['project_id']}"


def push(ann: Person, project: str, files: dict[str, str]) -> str:
    """Sends them, and returns what the sync did."""
    body = {"files": [{"path": path, "content": text} for path, text in files.items()]}
    ann.call("PUT", f"{project}/files", body)
    return str(ann.call("POST", f"{project}/sync")["data"]["outcome"])


def phase(ann: Person, project: str, wanted: str) -> Callable[[], Any]:
    """What runs, once it is in this phase."""

    def ask() -> Any:
        found = ann.call("GET", f"{project}/sandbox/status")["application"]
        return found if found and found["phase"] == wanted else None

    return ask


def shown(page: Page, link: str, text: str) -> Callable[[], Any]:
    """Whether a new visit shows it."""

    def visit() -> bool:
        try:
            page.goto(link, timeout=10_000)
            found = page.evaluate("document.getElementById('shown')?.textContent")
        except PlaywrightError:  # while the server restarts
            return False
        return bool(found == text)

    return visit


def test_a_vite_project_is_edited_broken_mended_restored_and_published(
    ann: Person, page: Page
) -> None:
    project = project_of(ann)
    assert push(ann, project, FILES) == "created"
    link = ann.call("POST", f"{project}/tokens", {}, expect=201)["url"]
    page.goto(link)
    expect(page.locator("#shown")).to_have_text("one")  # the page before it reloads itself
    assert until(phase(ann, project, "running"))["kind"] == "vite"
    loaded_at = page.evaluate("window.loadedAt")

    began = time.monotonic()
    assert push(ann, project, {"text.js": 'export const text = "two";\n'}) == "updated"
    expect(page.locator("#shown")).to_have_text("two")
    assert page.evaluate("window.loadedAt") == loaded_at, "seen without a reload"
    assert time.monotonic() - began < 30

    broken = PACKAGE | {"scripts": {"dev": "vite --config missing.js"}}
    assert push(ann, project, {"package.json": json.dumps(broken)}) == "installed"
    failed = until(phase(ann, project, "failed"))
    assert failed["exit_code"] == 1
    assert any("missing.js" in line for line in failed["last_lines"])
    page.goto(link)
    expect(page.locator("h1")).to_have_text("This preview does not run")
    expect(page.locator("pre")).to_contain_text("missing.js")
    log = ann.call("GET", f"{project}/sandbox/logs?lines=200")["lines"]
    assert any("missing.js" in line for line in log)

    assert push(ann, project, {"package.json": json.dumps(PACKAGE)}) == "installed"
    expect(page.locator("#shown")).to_have_text("two")

    more = json.dumps(PACKAGE | {"dependencies": {"nanoid": "*"}})
    text = 'import { nanoid } from "nanoid";\nexport const text = typeof nanoid;\n'
    assert push(ann, project, {"package.json": more, "text.js": text}) == "installed"
    until(shown(page, link, "function"), within_sec=120)

    first = ann.call("GET", f"{project}/versions")["versions"][-1]["version"]
    ann.call("POST", f"{project}/versions/{first}/restore", {})
    assert ann.call("POST", f"{project}/sync")["data"]["outcome"] == "installed"
    until(shown(page, link, "one"), within_sec=120)

    push(ann, project, {"dist/index.html": "<h1 id='built'>Built</h1>"})
    url = ann.call("POST", f"{project}/publish", {"root": "dist", "fallback": "index.html"})["url"]
    push(ann, project, {"dist/index.html": "a draft"})
    page.goto(f"{url}some/route")
    expect(page.locator("#built")).to_have_text("Built")
    assert ann.call("POST", f"{project}/sync")["data"]["outcome"] == "unchanged"
    ann.call("DELETE", f"{project}/sandbox")


def test_the_ten_lines_of_the_docs_show_restore_and_publish_a_vite_project(
    server: ServerProcess, ann: Person
) -> None:
    helpers = blocks("platform.md", "Five minutes, by curl")[0].partition("\n\n")[0]
    key = f'K="Authorization: {ann.headers["Authorization"]}"'
    [lines] = blocks("previews.md", "A Vite project in ten lines")
    done = paste(server, helpers, key, lines)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert '"phase":"running"' in done.stdout, done
    for told in ('"outcome":"created"', '"outcome":"updated"', '"message":"Second"'):
        assert told in done.stdout, done
    assert '"version":3}' in done.stdout, done
    assert done.stdout.endswith("<h1>Two</h1>\n"), done
    [made] = [each for each in ann.call("GET", "/projects")["projects"] if each["name"] == "vite"]
    ann.call("DELETE", f"/projects/{made['project_id']}", expect=204)
