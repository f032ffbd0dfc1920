"""`sandyard provider check` against providers that fit, and some that do not."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.servers.processes import csp_simulator, run_command


def check(url: str, *arguments: str, dialect: str = "generic") -> tuple[int, str]:
    settings = {"CSP_BASE_URL": url, "CSP_API_TOKEN": "sesame", "CSP_DIALECT": dialect}
    done = run_command("provider", "check", *arguments, environment=settings)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("dialect", ["generic", "infoblox"])
def test_the_simulator_fits_and_nothing_is_changed_there(tmp_path: Path, dialect: str) -> None:
    with csp_simulator(tmp_path, "--count", "3", "--token", "sesame") as url:
        code, output = check(url, dialect=dialect)
        assert code == 0, output
        assert "3 sandboxes" in output
        assert "wrong token: refused with 401" in output
        assert "returned 404 for a missing sandbox" in output
        looked = "returned 200 for an existing sandbox" in output
        assert looked == (dialect == "generic"), output
        assert httpx.get(f"{url}/_sim", timeout=60).json()["sandboxes"] == 3


def test_one_is_deleted_if_it_is_named_and_there(tmp_path: Path) -> None:
    with csp_simulator(tmp_path, "--count", "3", "--token", "sesame") as url:
        listing = httpx.get(
            f"{url}/api/sandbox", headers={"Authorization": "Bearer sesame"}, timeout=60
        )
        chosen = listing.json()["sandboxes"][1]["id"]
        code, output = check(url, "--delete", chosen)
        assert code == 0, output
        assert "deleted: returned 204" in output
        assert "deleted again: returned 404" in output
        assert httpx.get(f"{url}/_sim", timeout=60).json()["sandboxes"] == 2
        code, output = check(url, "--delete", chosen)
        assert code == 1
        assert "the list has no such id; nothing was deleted" in output


def test_one_is_made_and_deleted_if_that_is_allowed(tmp_path: Path) -> None:
    with csp_simulator(tmp_path, "--count", "3", "--token", "sesame") as url:
        code, output = check(url, "--create")
        assert code == 0, output
        [made] = re.findall(r"ok +POST /api/sandbox: created (\S+)", output)
        assert f"DELETE /api/sandbox/{made}: deleted: returned 204" in output
        assert f"DELETE /api/sandbox/{made}: deleted again: returned 404" in output
        assert "not show it" not in output
        assert httpx.get(f"{url}/_sim", timeout=60).json()["sandboxes"] == 3
        code, output = check(url, "--create", dialect="infoblox")
        assert code == 0, output
        assert "create: not part of the dialect infoblox" in output


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet(BaseHTTPRequestHandler):
    def answer(self, status: int, body: Any) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def answering(status: int, body: Any) -> Iterator[str]:
    """A provider that answers the same to everything."""

    class Handler(Quiet):
        def _answer(self) -> None:
            self.answer(status, body)

        do_GET = do_DELETE = do_POST = _answer  # noqa: N815 - names of the library

    with serving(Handler) as url:
        yield url


@contextmanager
def creating(status: int, *, answered: bool = True, renamed: bool = False) -> Iterator[str]:
    """A provider that answers so to a creation: with the id or not, under the name or another."""
    made: dict[str, str] = {}

    class Handler(Quiet):
        def do_GET(self) -> None:
            entries = [{"id": each, "name": name} for each, name in made.items()]
            self.answer(200, {"sandboxes": entries, "next_cursor": None})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if status < 300:
                made["new"] = "anything" if renamed else asked["name"]
            self.answer(status, {"id": "new", "name": asked["name"]} if answered else {})

        def do_DELETE(self) -> None:
            self.answer(204 if made.pop(self.path.rsplit("/", 1)[-1], None) else 404, b"")

    with serving(Handler) as url:
        yield url
        assert made == {}, "nothing is left there"


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        ({"status": 405, "answered": False}, 0, "note  POST /api/sandbox: can't create"),
        ({"status": 403, "answered": False}, 1, "returned 403, expected 201"),
        ({"status": 201, "answered": False}, 1, "returned 201, expected a string `id`"),
        ({"status": 201, "renamed": True}, 1, "the list names it 'anything'"),
        ({"status": 201}, 0, "created new"),
    ],
)
def test_what_does_not_fit_of_a_creation_is_said_and_nothing_is_left(
    answers: dict[str, Any], code: int, said: str
) -> None:
    with creating(**answers) as url:
        found, output = check(url, "--create")
    assert said in output
    assert found == code, output


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<html>", "the response is not JSON"),
        (200, {"results": []}, "must be an object with a list `sandboxes`"),
        (200, {"sandboxes": [{"id": 5}]}, "`sandboxes[0].id` must be a non-empty string"),
        (200, {"sandboxes": [], "next_cursor": {"page": 2}}, "`next_cursor` must be a string"),
        (200, {"sandboxes": [{"id": "a"}]}, "anybody can list the sandboxes"),
        (302, {}, "returned 302, expected 200"),
        (400, {}, "returned 400, expected 404"),
        (200, {"sandboxes": [{"id": "a"}]}, "200 for a missing sandbox: do not set `PROBE="),
    ],
)
def test_what_does_not_fit_is_said(status: int, body: Any, said: str) -> None:
    with answering(status, body) as url:
        code, output = check(url)
    assert said in output
    assert code == (1 if status != 200 or "must" in said or "not JSON" in said else 0)


@pytest.mark.parametrize(
    ("settings", "missing"),
    [({}, "CSP_BASE_URL"), ({"CSP_BASE_URL": "http://127.0.0.1:9"}, "CSP_API_TOKEN")],
)
def test_without_a_provider_or_its_token_there_is_nothing_to_check(
    settings: dict[str, str], missing: str
) -> None:
    done = run_command("provider", "check", environment=settings)
    assert done.returncode == 1
    assert done.stderr.startswith(f"sandyard: {missing}: must be set")


def test_a_provider_that_is_away_is_told_as_such() -> None:
    code, output = check("http://127.0.0.1:9")
    assert code == 1
    assert "no response" in output
