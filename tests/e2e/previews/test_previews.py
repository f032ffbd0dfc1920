"""Previews with real processes: E2B's double, `kill -9` at the worst instant, and this machine."""

import os
import re
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import sync_playwright

from tests.support.e2b.double import API_KEY
from tests.support.e2b.double_process import e2b_double_process
from tests.support.servers.processes import sandyard_serve, verify
from tests.support.servers.sandbox_programs import page_of
from tests.support.servers.users import Person, signed_up

CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PARTS = {"PARTS": "platform,previews", "PREVIEW_ATTEMPT_SEC": "60"}


def new_project(person: Person, text: str) -> str:
    project = person.call("POST", "/projects", {"name": "site"}, expect=201)["project_id"]
    body = {"files": [{"path": "index.html", "content": text}]}
    assert person.call("PUT", f"/projects/{project}/files", body)["version"] == 1
    return str(project)


def double_state(url: str) -> dict[str, Any]:
    state: dict[str, Any] = httpx.get(f"{url}/_double", timeout=60).json()
    return state


def test_a_server_killed_between_the_providers_answer_and_the_record(tmp_path: Path) -> None:
    with e2b_double_process() as e2b:
        environment = PARTS | {
            "PREVIEW_PROVIDER": "e2b",
            "E2B_API_KEY": API_KEY,
            "E2B_API_URL": e2b,
            "E2B_SANDBOX_URL": e2b,
        }
        data = tmp_path / "data"
        with sandyard_serve(data, environment=environment) as server:
            ann = signed_up(server, "ann", mail=1)
            project = new_project(ann, "hello")
            fault = {"kind": "hang_after", "operation": "create", "times": 1}
            httpx.put(f"{e2b}/_double/faults", json=[fault], timeout=60).raise_for_status()

            def sync() -> None:
                with suppress(httpx.TransportError):
                    httpx.post(
                        f"{server.url}/api/v1/projects/{project}/sync",
                        headers=ann.headers,
                        timeout=20,
                    )

            syncing = threading.Thread(target=sync)
            syncing.start()
            deadline = time.monotonic() + 60
            while not double_state(e2b)["sandboxes"]:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            server.kill()
            syncing.join()
        with sandyard_serve(data, environment=environment) as server:
            ann.url = server.url
            before = ann.call("GET", f"/projects/{project}/sandbox/status")
            assert before["status"] == "not_found", "it was not recorded"
            synced = ann.call("POST", f"/projects/{project}/sync")
            state = double_state(e2b)
            [box] = state["sandboxes"]
            assert synced["data"]["sandbox_info"]["sandbox_id"] == box["sandboxID"]
            assert state["calls"]["create"] == 1
            status = ann.call("GET", f"/projects/{project}/sandbox/status")
            assert status["status"] == "running"
            code, output = verify(data, environment)
            assert code == 0, output


def test_a_project_is_shown_on_this_machine(tmp_path: Path) -> None:
    environment = PARTS | {"PREVIEW_TTL_MINUTES": "0.25"}
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        ann = signed_up(server, "ann", mail=1)
        project = new_project(ann, "<h1>one</h1>")
        synced = ann.call("POST", f"/projects/{project}/sync")
        info = synced["data"]["sandbox_info"]
        assert page_of(ann, info["preview_url"]).text == "<h1>one</h1>"
        body = {
            "files": [{"path": "index.html", "content": "<h1>two</h1>"}],
            "deleted": ["never-there"],
        }
        ann.call("PUT", f"/projects/{project}/files", body)
        again = ann.call("POST", f"/projects/{project}/sync")
        assert again["data"]["sandbox_info"] == info
        assert page_of(ann, info["preview_url"]).text == "<h1>two</h1>"
        deadline = time.monotonic() + 60
        while (status := ann.call("GET", f"/projects/{project}/sandbox/status"))[
            "status"
        ] == "running":
            assert time.monotonic() < deadline
            time.sleep(0.3)
        assert (status["status"], status["action_required"]) == ("expired", "sync_needed")
        assert "The preview has ended." in page_of(ann, info["preview_url"]).text
        new = ann.call("POST", f"/projects/{project}/sync")["data"]["sandbox_info"]
        assert new["sandbox_id"] != info["sandbox_id"]
        assert page_of(ann, new["preview_url"]).text == "<h1>two</h1>"


def test_the_component_and_its_page_are_served(tmp_path: Path) -> None:
    with sandyard_serve(tmp_path / "data", environment=PARTS) as server:
        page = httpx.get(f"{server.url}/previews/demo", timeout=60)
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        script = httpx.get(f"{server.url}/previews/sandbox-status.js", timeout=60)
        assert script.headers["content-type"].startswith("text/javascript")
        assert "customElements.define" in script.text
        modules = re.findall(r'from "\./(.+)";', script.text)
        assert len(modules) == 4
        for name in ("sandbox-status.js", *modules):
            module = httpx.get(f"{server.url}/previews/{name}", timeout=60)
            assert (module.status_code, module.headers["access-control-allow-origin"]) == (200, "*")


def test_the_demo_page_shows_a_project_in_chromium(tmp_path: Path) -> None:
    """The whole of it: the real server, its page under its own policy, a real preview inside."""
    environment = PARTS | {"PREVIEW_TTL_MINUTES": "1"}  # it outlives the server by no more
    with (
        sandyard_serve(tmp_path / "data", environment=environment) as server,
        sync_playwright() as playwright,
    ):
        ann = signed_up(server, "ann", mail=1)
        project = new_project(ann, "<h1>Hello from a sandbox</h1>")
        token = ann.headers["Authorization"].removeprefix("Bearer ")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=CHROMIUM_ARGUMENTS
        )
        page = browser.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(f"{server.url}/previews/demo")
        page.get_by_label("Project").fill(project)
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Show").click()
        page.mouse.move(50, 50)
        page.mouse.move(90, 90)
        page.get_by_text("Running", exact=True).wait_for(timeout=20_000)
        frame = page.frame_locator("iframe")
        frame.get_by_role("heading", name="Hello from a sandbox").wait_for(timeout=20_000)
        if folder := os.environ.get("SANDYARD_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/demo.png")
        browser.close()
        refused = [text for text in complaints if "Content Security Policy" in text]
        assert refused == []
        held = ann.call("GET", f"/projects/{project}/sandbox/status")
        assert held["status"] == "running"
