"""A version that is built or run in a sandbox, at an address of its own."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.servers.processes import ServerProcess, sandyard_serve
from tests.support.servers.users import Person, signed_up, until

BUILDS = {
    "package.json": json.dumps({"scripts": {"build": "node build.js"}}),
    "build.js": "const fs = require('fs');\nfs.mkdirSync('dist', { recursive: true });\n"
    "fs.writeFileSync('dist/index.html', '<b>' + fs.readFileSync('text') + '</b>');\n",
    "text": "built",
}
RUNS = {
    "package.json": json.dumps({"scripts": {"start": "node app.js"}}),
    "app.js": "require('http').createServer((request, response) => response.end("
    "'runs for ' + request.headers.host)).listen(process.env.PORT, process.env.HOST);\n",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with sandyard_serve(tmp_path_factory.mktemp("published") / "data") as made:
        yield made


@pytest.fixture(scope="module")
def ann(server: ServerProcess) -> Person:
    return signed_up(server, "ann", mail=1)


def fetch(url: str) -> httpx.Response:
    parts = urlsplit(url)
    here = f"http://127.0.0.1:{parts.port}{parts.path}"
    return httpx.get(here, headers={"Host": parts.netloc}, timeout=60)


def project_with(ann: Person, name: str, files: dict[str, str]) -> str:
    made = ann.call("POST", "/projects", {"name": name}, expect=201)
    path = f"/projects/{made['project_id']}"
    change(ann, path, files)
    return path


def change(ann: Person, project: str, files: dict[str, str]) -> None:
    body = [{"path": path, "content": text} for path, text in files.items()]
    ann.call("PUT", f"{project}/files", {"files": body})


def ended(ann: Person, project: str) -> Callable[[], Any]:
    """What is published, once no attempt is in progress."""

    def ask() -> Any:
        found = ann.call("GET", f"{project}/publish")
        is_over = found["attempt"] is None or found["attempt"]["failure"] is not None
        return found if is_over else None

    return ask


def active(ann: Person) -> list[str]:
    found = ann.call("GET", "/sandboxes")["sandboxes"]
    return [each["sandbox_id"] for each in found if each["status"] != "recycled"]


def test_what_a_build_makes_is_published_and_a_failed_one_changes_nothing(ann: Person) -> None:
    project = project_with(ann, "builds", BUILDS)
    begun = ann.call("POST", f"{project}/publish", {"mode": "build"})
    assert (begun["version"], begun["attempt"]["version"]) == (None, 1)
    busy = ann.call("POST", f"{project}/publish", {"mode": "build"}, expect=409)
    assert busy["error"]["code"] == "PUBLISHING_BUSY"
    shown = until(ended(ann, project), within_sec=120)
    assert (shown["version"], shown["root"], shown["attempt"]) == (1, "dist", None), shown
    assert fetch(shown["url"]).text == "<b>built</b>"
    assert fetch(f"{shown['url']}text").status_code == 404, "only what was built"

    change(ann, project, {"build.js": "console.log('why not'); process.exit(3)\n"})
    ann.call("POST", f"{project}/publish", {"mode": "build"})
    failed = until(ended(ann, project), within_sec=120)
    assert (failed["version"], failed["attempt"]["version"]) == (1, 2)
    assert "why not" in failed["attempt"]["last_lines"]
    assert fetch(shown["url"]).text == "<b>built</b>"
    until(lambda: not active(ann))


def test_an_application_runs_until_it_is_unpublished_and_is_woken_by_requests(ann: Person) -> None:
    project = project_with(ann, "runs", RUNS)
    ann.call("POST", f"{project}/publish", {"mode": "run"})
    first = until(ended(ann, project), within_sec=120)
    assert first["attempt"] is None, first
    host = first["url"].removeprefix("http://").strip("/")
    assert fetch(first["url"]).text == f"runs for {host}"
    [sandbox] = active(ann)
    assert first["sandbox_id"] == sandbox

    ann.call("POST", f"/sandboxes/{sandbox}/stop", {})
    woken = until(lambda: "runs for" in (text := fetch(first["url"]).text) and text)
    assert woken == f"runs for {host}"

    change(ann, project, {"app.js": "process.exit(1);\n"})
    ann.call("POST", f"{project}/publish", {"mode": "run"})
    assert until(ended(ann, project), within_sec=120)["attempt"]["failure"] is not None
    assert fetch(first["url"]).text == f"runs for {host}", "as it was"

    change(ann, project, {"app.js": RUNS["app.js"].replace("runs for", "now for")})
    ann.call("POST", f"{project}/publish", {"mode": "run"})
    second = until(ended(ann, project), within_sec=120)
    assert second["attempt"] is None, second
    assert fetch(second["url"]).text == f"now for {host}"
    until(lambda: active(ann) == [second["sandbox_id"]])

    ann.call("DELETE", f"{project}/publish", expect=204)
    assert fetch(second["url"]).status_code == 404
    assert active(ann) == []
