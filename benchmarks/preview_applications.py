"""A preview of a Vite project: the first one, the next one with its packages, and an edit until a
browser shows it."""

import time
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import expect

from benchmarks.report import Figure, Measured, Say
from tests.e2e.previews.conftest import browser_page
from tests.e2e.previews.test_applications import FILES, phase, project_of, push
from tests.support.servers.processes import sandyard_serve
from tests.support.servers.users import signed_up, until
from tests.support.services.package_indexes import NETWORK, installed_packages, package_index

_ROUNDS = 20
_LIMIT_MS = 1000


def measure(folder: Path, say: Say) -> Measured:
    with package_index(wheels={}, packages=installed_packages("vite@6")) as index:
        environment = {
            "SANDBOX_EGRESS_NETWORKS": NETWORK,
            "SANDBOX_NPM_REGISTRY": index.npm_registry,
            "PREVIEW_MEMORY_GB": "1.5",
            "LOG_LEVEL": "WARNING",
        }
        with sandyard_serve(folder / "data", environment=environment) as server:
            return _measure(signed_up(server, "ann", mail=1), say)


def _measure(ann: Any, say: Say) -> Measured:
    project = project_of(ann)

    def started(files: dict[str, str]) -> float:
        began = time.perf_counter()
        push(ann, project, files)
        until(phase(ann, project, "running"), within_sec=300)
        return time.perf_counter() - began

    say("preview applications: the first preview of a Vite project")
    cold = started(FILES)
    time.sleep(5)  # its packages are kept in the background
    ann.call("DELETE", f"{project}/sandbox")
    say("preview applications: the next one")
    warm = started({"text.js": 'export const text = "warm";\n'})
    seen_ms = []
    with browser_page() as page:
        page.goto(ann.call("POST", f"{project}/tokens", {}, expect=201)["url"])
        expect(page.locator("#shown")).to_have_text("warm")
        for number in range(_ROUNDS):
            body = {"files": [{"path": "text.js", "content": f'export const text = "{number}";\n'}]}
            ann.call("PUT", f"{project}/files", body)
            began = time.perf_counter()
            ann.call("POST", f"{project}/sync")
            shown = f"document.getElementById('shown').textContent === '{number}'"
            page.wait_for_function(shown, polling=5)
            seen_ms.append((time.perf_counter() - began) * 1000)
    ann.call("DELETE", f"{project}/sandbox")
    return Measured(
        [
            Figure.below(
                "Vite: sync of one changed file to its hot reload in Chromium",
                median(seen_ms),
                _LIMIT_MS,
                "ms",
            ),
            Figure(
                "  the first preview until it runs; the next one", f"{cold:.1f} s, {warm:.1f} s"
            ),
        ],
        f"preview applications {_ROUNDS}",
    )
