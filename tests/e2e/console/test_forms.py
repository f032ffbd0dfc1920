"""What the forms of pages send: each changes what it says, as the API tells afterwards."""

from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.e2e.console.sessions import ConsoleSession


def told(session: ConsoleSession, path: str) -> Any:
    return session.call("GET", path).json()


def posted(session: ConsoleSession, path: str, form: dict[str, str] | None = None) -> str:
    """The page that is shown then, or where it leads."""
    answer = session.post(path, form)
    assert answer.status_code in (200, 303), answer.text
    return str(answer.headers.get("location", answer.text))


@pytest.fixture(scope="module")
def template_id(anns_session: ConsoleSession) -> str:
    found = told(anns_session, "/api/v1/templates?visibility=official&q=static")
    return str(found["templates"][0]["template_id"])


def test_a_sandbox_is_made_and_changed_with_all_that_the_api_takes(
    anns_session: ConsoleSession, template_id: str
) -> None:
    size = {"cpu_spec": "2", "memory_spec": "0.5", "max_running_seconds": "1.5"}
    rest = {"network": "packages", "idle_stop_minutes": "", "keeps_memory": "on"}
    form = {"name": "with a size", "template_id": template_id, "description": "big", **size, **rest}
    page = posted(anns_session, "/console/sandboxes", form)
    path = f"/api/v1/sandboxes/{page.rpartition('/')[2]}"
    made = told(anns_session, path)
    assert (made["cpu_spec"], made["memory_spec"], made["max_running_seconds"]) == (2, 0.5, 5_400)
    assert (made["network"], made["idle_stop_minutes"], made["description"]) == (
        "packages",
        None,
        "big",
    )
    assert (made["keeps_memory"], made["recycle_on_timeout"]) == (True, False)
    changed = {"name": "renamed", "network": "none", "idle_stop_minutes": "5", "cpu_spec": "1"}
    changed |= {"wake_on_request": "on", "program_policy": "never", "memory_spec": "1"}
    assert posted(anns_session, f"{page}/settings", changed) == f"{page}/settings"
    found = told(anns_session, path)
    for name in ("name", "network", "program_policy"):
        assert found[name] == changed[name]
    assert (found["idle_stop_minutes"], found["cpu_spec"], found["memory_spec"]) == (5, 1, 1)
    assert found["wake_on_request"]
    assert (found["description"], found["project_id"]) == (None, None)  # both were empty
    shown = anns_session.get(f"{page}/settings").text
    assert 'value="renamed"' in shown
    anns_session.call("DELETE", path)
    assert "recycled" in anns_session.get(f"{page}/settings").text


def test_a_link_is_shared_for_some_minutes_and_one_port(
    anns_session: ConsoleSession, template_id: str
) -> None:
    body = {"name": "shared", "template_id": template_id}
    box = anns_session.call("POST", "/api/v1/sandboxes", body).json()["sandbox_id"]
    anns_session.call("POST", f"/api/v1/sandboxes/{box}/start")
    page = posted(anns_session, f"/console/sandboxes/{box}/share", {"minutes": "7", "port": "8080"})
    url = page.partition('target="_blank"')[0].rpartition('href="')[2].partition('"')[0]
    shared = urlsplit(url.replace("&amp;", "&"))
    assert shared.netloc.startswith(f"8080-{box}.")
    opened = f"{anns_session.url}{shared.path}?{shared.query}"
    answer = httpx.get(opened, headers={"Host": shared.netloc}, timeout=60)
    assert not answer.is_error
    assert "set-cookie" in answer.headers
    assert anns_session.post(f"/console/sandboxes/{box}/share", {"minutes": "x"}).status_code == 400
    anns_session.call("DELETE", f"/api/v1/sandboxes/{box}")


def test_a_secret_is_bound_to_hosts(anns_session: ConsoleSession, template_id: str) -> None:
    body = {"name": "bound", "template_id": template_id}
    box = anns_session.call("POST", "/api/v1/sandboxes", body).json()["sandbox_id"]
    form = {"name": "KEY", "value": "0123456789", "secret": "on", "most_requests": "10"}
    form |= {"binding": "api.example.com, *.example.org", "methods": "GET", "sets_header": "x-key"}
    page = posted(anns_session, f"/console/sandboxes/{box}/env", form)
    assert "for api.example.com, *.example.org" in page
    [variable] = told(anns_session, f"/api/v1/sandboxes/{box}/env")["variables"]
    binding = variable["binding"]
    assert binding["hosts"] == ["api.example.com", "*.example.org"]
    assert (binding["methods"], binding["most_requests"]) == (["GET"], 10)
    assert binding["sets_header"] == "x-key"
    anns_session.call("DELETE", f"/api/v1/sandboxes/{box}")


def test_a_project_is_renamed_archived_made_default_and_deleted(
    anns_session: ConsoleSession,
) -> None:
    form = {"name": "of forms", "description": "first"}
    page = posted(anns_session, "/console/projects", form)
    path = f"/api/v1/projects/{page.rpartition('/')[2]}"
    assert told(anns_session, path)["description"] == "first"
    posted(anns_session, f"{page}/settings", {"name": "renamed"})
    assert (told(anns_session, path)["name"], told(anns_session, path)["description"]) == (
        "renamed",
        None,
    )
    assert "Unarchive" in posted(anns_session, f"{page}/archive")
    assert told(anns_session, path)["status"] == "archived"
    posted(anns_session, f"{page}/unarchive")
    former = told(anns_session, "/api/v1/projects?limit=100")["projects"]
    [default] = [each["project_id"] for each in former if each["is_default"]]
    assert "This is the default project" in posted(anns_session, f"{page}/default")
    posted(anns_session, f"/console/projects/{default}/default")
    assert posted(anns_session, f"{page}/delete").endswith("/console/projects")
    assert anns_session.get(page).status_code == 404


def test_a_project_has_variables_and_its_files_are_deleted(anns_session: ConsoleSession) -> None:
    page = posted(anns_session, "/console/projects", {"name": "with variables"})
    path = f"/api/v1/projects/{page.rpartition('/')[2]}"
    shown = posted(anns_session, f"{page}/env", {"name": "EMPTY"})
    assert "EMPTY" in shown
    [variable] = told(anns_session, f"{path}/env")["variables"]
    assert (variable["value"], variable["is_secret"]) == ("", False)
    at = f"{anns_session.url}{page}/env/EMPTY"
    httpx.delete(at, headers=anns_session.headers, timeout=60).raise_for_status()
    assert told(anns_session, f"{path}/env")["variables"] == []
    posted(anns_session, f"{page}/files", {"path": "a.txt", "content": "b", "version": "0"})
    posted(anns_session, f"{page}/files", {"path": "a.txt", "delete": "yes", "version": "1"})
    assert told(anns_session, f"{path}/files")["files"] == []
    link = posted(anns_session, f"{page}/share", {"minutes": "5"})
    assert "The link, valid until" in link
    anns_session.call("DELETE", path)
