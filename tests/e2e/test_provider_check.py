"""`sandyard provider check` against providers that fit, and some that do not."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers import clean_environment, csp_simulator


def check(url: str, *arguments: str, dialect: str = "generic") -> tuple[int, str]:
    settings = {"CSP_BASE_URL": url, "CSP_API_TOKEN": "sesame", "CSP_DIALECT": dialect}
    done = subprocess.run(
        [sys.executable, "-m", "sandyard", "provider", "check", *arguments],
        env=clean_environment(settings),
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("dialect", ["generic", "infoblox"])
def test_the_simulator_fits_and_nothing_is_changed_there(tmp_path: Path, dialect: str) -> None:
    with csp_simulator(tmp_path, "--count", "3", "--token", "sesame") as url:
        code, output = check(url, dialect=dialect)
        assert code == 0, output
        assert "3 sandboxes" in output
        assert "wrong token: refused with 401" in output
        assert "answers 404 for one that is not there" in output
        assert httpx.get(f"{url}/_sim").json()["sandboxes"] == 3


def test_one_is_deleted_if_it_is_named_and_there(tmp_path: Path) -> None:
    with csp_simulator(tmp_path, "--count", "3", "--token", "sesame") as url:
        listing = httpx.get(f"{url}/api/sandbox", headers={"Authorization": "Bearer sesame"})
        chosen = listing.json()["sandboxes"][1]["id"]
        code, output = check(url, "--delete", chosen)
        assert code == 0, output
        assert "deleted: answers 204" in output
        assert "deleted again: answers 404" in output
        assert httpx.get(f"{url}/_sim").json()["sandboxes"] == 2
        code, output = check(url, "--delete", chosen)
        assert code == 1
        assert "the list has no such id; nothing was deleted" in output


@contextmanager
def answering(status: int, body: Any) -> Iterator[str]:
    """A provider that answers the same to everything."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_DELETE = do_POST = _answer  # noqa: N815 - names of the library

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<html>", "the answer is not JSON"),
        (200, {"results": []}, "must be an object with a list `sandboxes`"),
        (200, {"sandboxes": [{"id": 5}]}, "`sandboxes[0].id` must be text"),
        (200, {"sandboxes": [], "next_cursor": {"page": 2}}, "`next_cursor` must be text"),
        (200, {"sandboxes": [{"id": "a"}]}, "anybody may list the sandboxes"),
        (302, {}, "answers 302, and 200 is wanted"),
        (400, {}, "answers 400, and 404 is wanted"),
    ],
)
def test_what_does_not_fit_is_said(status: int, body: Any, said: str) -> None:
    with answering(status, body) as url:
        code, output = check(url)
    assert said in output
    assert code == (0 if "anybody" in said else 1)


def test_without_a_provider_there_is_nothing_to_check() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sandyard", "provider", "check"],
        env=clean_environment(),
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("sandyard: CSP_BASE_URL: must be set")


def test_a_provider_that_is_away_is_told_as_such() -> None:
    code, output = check("http://127.0.0.1:9")
    assert code == 1
    assert "no answer" in output
