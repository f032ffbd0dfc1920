"""Two tenants: nothing of one is in the other's pages, answers or event stream."""

from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from threading import Thread
from urllib.parse import quote

import httpx
import pytest

from sandyard.bootstrap.console import SCREENS
from tests.e2e.console.people import BOB
from tests.e2e.console.sessions import ConsoleSession, session_of
from tests.support.servers.processes import ServerProcess

MARK = "zanzibar"
"""Is in everything that Ann has and names."""
CHANGED = ["event: platform", "data: changed"]
LISTS = [
    *("/sandboxes", "/projects", "/api-keys", "/notifications", "/events", "/me", "/me/quota"),
    *("/templates", "/usage", "/billing", "/billing/month-to-date?by=sandbox", "/me/export"),
]


@pytest.fixture(scope="module")
def ann(anns_session: ConsoleSession) -> ConsoleSession:
    return anns_session


@pytest.fixture(scope="module")
def bob(console: ServerProcess) -> ConsoleSession:
    return session_of(console, BOB)


@pytest.fixture(scope="module")
def of_ann(ann: ConsoleSession) -> dict[str, str]:
    """A thing of each kind, and its id by the name that paths have for it."""
    project = ann.call("POST", "/api/v1/projects", {"name": f"project {MARK}"}).json()
    at = f"/api/v1/projects/{project['project_id']}/files"
    page = {"path": f"{MARK}.html", "content": f"<p>{MARK}</p>", "encoding": "utf-8"}
    ann.call("PUT", at, {"files": [page], "expected_version": 0})
    found = ann.call("GET", "/api/v1/templates?visibility=official&q=static").json()
    body = {"name": f"box {MARK}", "template_id": found["templates"][0]["template_id"]}
    sandbox = ann.call("POST", "/api/v1/sandboxes", body).json()
    ann.call("PUT", f"/api/v1/sandboxes/{sandbox['sandbox_id']}/env/MARK", {"value": MARK})
    key = ann.call("POST", "/api/v1/api-keys", {"name": f"key {MARK}", "scope": "run"}).json()
    me = ann.call("PATCH", "/api/v1/me", {"full_name": f"Ann {MARK}"}).json()
    return {
        "project_id": project["project_id"],
        "sandbox_id": sandbox["sandbox_id"],
        "key_id": key["key_id"],
        "account_id": me["account_id"],
    }


def paths(ids: dict[str, str]) -> list[str]:
    """Of every page, with Ann's ids in it."""
    given = ids | {"hardware_id": "AA:BB:CC:DD:EE:01", "chart": "pool"}
    names = ("webhook_id", "reservation_id", "job", "action", "track", "name", "template_id")
    given |= dict.fromkeys(names, "none")
    return sorted({each.path.format_map(given) for each in SCREENS if each.method == "GET"})


def test_no_page_of_one_shows_anything_of_the_other(
    ann: ConsoleSession, bob: ConsoleSession, of_ann: dict[str, str]
) -> None:
    pages = [each for each in paths(of_ann) if "/login" not in each]
    seen = [each for each in pages if MARK in ann.get(each).text]
    assert len(seen) >= 6, seen  # what is looked for is really there
    for path in pages:
        assert_nothing_of_ann(bob.get(path), of_ann)


def test_no_call_through_the_console_shows_data_of_another_account(
    ann: ConsoleSession, bob: ConsoleSession, of_ann: dict[str, str]
) -> None:
    mine = [each for each in LISTS if MARK in ann.call("GET", f"/api/v1{each}").text]
    assert {"/sandboxes", "/projects", "/api-keys", "/me", "/me/export"} <= set(mine)
    sandbox = f"/sandboxes/{of_ann['sandbox_id']}"
    project = f"/projects/{of_ann['project_id']}"
    own = [sandbox, f"{sandbox}/env", f"{sandbox}/history", f"{sandbox}/logs", f"{sandbox}/metrics"]
    own += [project, f"{project}/files", f"{project}/sandbox/status"]
    for path in [*LISTS, *own, "/admin/users", "/admin/events"]:
        answer = bob.get(f"/console/api/api/v1{path}")
        assert_nothing_of_ann(answer, of_ann)
        assert answer.status_code in ((403, 404) if path not in LISTS else (200,)), path


def test_no_action_of_one_reaches_what_the_other_has(
    ann: ConsoleSession, bob: ConsoleSession, of_ann: dict[str, str]
) -> None:
    sandbox = f"/console/sandboxes/{of_ann['sandbox_id']}"
    project = f"/console/projects/{of_ann['project_id']}"
    form = {"path": "a", "content": "b", "version": "1", "name": "MARK", "value": "mine"}
    actions = [f"{sandbox}/{each}" for each in ("start", "stop", "recycle", "publish", "env")]
    actions += [f"{sandbox}/open", f"{project}/files", f"{project}/sync", f"{project}/stop"]
    actions += [f"/console/account/keys/{of_ann['key_id']}/delete", "/console/labs/jobs/sync"]
    actions += [f"/console/admin/users/{of_ann['account_id']}/deactivate"]
    before = state(ann, of_ann)
    for path in actions:
        answer = bob.post(path, form)
        assert answer.status_code in (403, 404), (path, answer.status_code)
        assert_nothing_of_ann(answer, of_ann)
    assert state(ann, of_ann) == before


def state(ann: ConsoleSession, of_ann: dict[str, str]) -> list[object]:
    sandbox = f"/sandboxes/{of_ann['sandbox_id']}"
    names = [sandbox, f"{sandbox}/env", f"/projects/{of_ann['project_id']}/files", "/api-keys"]
    return [ann.call("GET", f"/api/v1{each}").json() for each in names]


def test_the_stream_of_one_is_silent_while_the_other_works(
    ann: ConsoleSession, bob: ConsoleSession
) -> None:
    """Changes are told to everybody at once: when Ann has heard of hers, Bob would have too."""
    with ann.live() as of_ann, bob.live() as of_bob, collecting(of_bob) as collected:
        made = ann.call("POST", "/api/v1/projects", {"name": f"heard {MARK}"}).json()
        assert heard(of_ann) == CHANGED
        ann.call("DELETE", f"/api/v1/projects/{made['project_id']}")
        assert heard(of_ann) == CHANGED
        assert collected.empty()
        for number in (1, 2):
            bob.call("POST", "/api/v1/projects", {"name": f"quiet {number}"})
            assert [collected.get(timeout=30) for _ in CHANGED] == CHANGED
        assert collected.empty()  # one for each of his, and none of hers


@contextmanager
def collecting(lines: Iterator[str]) -> Iterator[Queue[str]]:
    """What comes from now on, until four lines are there."""
    collected: Queue[str] = Queue()

    def collect() -> None:
        for _ in CHANGED * 2:
            collected.put(next(lines))

    collector = Thread(target=collect)
    collector.start()
    try:
        yield collected
    finally:
        collector.join(30)


def heard(lines: Iterator[str]) -> list[str]:
    """Of the next change."""
    return [next(lines), next(lines)]


def test_without_a_login_no_page_shows_data(console: ServerProcess, of_ann: dict[str, str]) -> None:
    for path in paths(of_ann):
        answer = httpx.get(console.url + path, timeout=60, follow_redirects="oidc" not in path)
        assert MARK not in answer.text.replace(quote(path), "")
        is_begun = "oidc" in path and answer.is_redirect
        is_open = answer.url.path in ("/console/login", "/console/signup") or is_begun
        assert is_open or answer.is_error


def assert_nothing_of_ann(answer: httpx.Response, of_ann: dict[str, str]) -> None:
    """No name; and no id but the one that was asked for."""
    assert MARK not in answer.text.replace(str(answer.request.url), ""), answer.request.url
    told = [each for each in of_ann.values() if each not in str(answer.request.url)]
    assert not any(each in answer.text for each in told), answer.request.url
