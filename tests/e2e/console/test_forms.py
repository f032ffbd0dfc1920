"""What the forms of pages send: each changes what it says, as the API tells afterwards."""

from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.e2e.console.sessions import ConsoleSession
from tests.support.servers.processes import ServerProcess


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
    gone = {"path": "a.txt", "delete": "yes", "version": "1", "message": "not needed"}
    posted(anns_session, f"{page}/files", gone)
    assert told(anns_session, f"{path}/files")["files"] == []
    shown = anns_session.get(f"{page}/versions?version=2&since=1").text
    assert "removed" in shown
    assert "not needed" in shown
    posted(anns_session, f"{page}/versions/1/restore")
    assert [each["path"] for each in told(anns_session, f"{path}/files")["files"]] == ["a.txt"]
    link = f"/console/api{path}/files/tar?version=1"
    assert f'href="{link}"' in anns_session.get(f"{page}/versions").text
    assert b"a.txt" in anns_session.get(link).content
    posted(anns_session, f"{page}/versions/remove", {"keep": "1"})
    assert len(told(anns_session, f"{path}/versions")["versions"]) == 1
    shown = posted(anns_session, f"{page}/publish", {"root": "", "fallback": "a.txt"})
    published = told(anns_session, f"{path}/publish")
    assert published["fallback"] == "a.txt"
    assert published["url"] in shown
    posted(anns_session, f"{page}/unpublish")
    assert anns_session.get(f"/console/api{path}/publish").status_code == 404
    link = posted(anns_session, f"{page}/share", {"minutes": "5"})
    assert "The link, valid until" in link
    anns_session.call("DELETE", path)


def test_a_template_of_others_is_shown_without_a_form(
    anns_session: ConsoleSession, template_id: str
) -> None:
    shown = anns_session.get(f"/console/templates/{template_id}").text
    assert "builtin:static" in shown
    assert 'name="repository_url"' not in shown


def test_a_template_is_made_changed_and_deleted(anns_session: ConsoleSession) -> None:
    form = {"name": "of forms", "category": "web", "language": "html", "tags": "a, b"}
    form |= {"repository_url": "builtin:static", "min_memory_required": "1.5", "is_public": "on"}
    page = posted(anns_session, "/console/templates", form | {"network": "none"})
    path = f"/api/v1/templates/{page.rpartition('/')[2]}"
    made = told(anns_session, path)
    assert (made["tags"], made["min_memory_required"]) == (["a", "b"], 1.5)
    assert (made["is_public"], made["network"], made["is_official"]) == (True, "none", False)
    assert "of forms" in anns_session.get("/console/templates?visibility=public").text
    assert posted(anns_session, page, {"name": "changed", "isolation": "gvisor"}) == page
    found = told(anns_session, path)
    assert (found["name"], found["isolation"], found["language"]) == ("changed", "gvisor", "html")
    assert (found["tags"] or [], found["is_public"], found["network"]) == ([], False, None)
    assert posted(anns_session, f"{page}/delete").endswith("/console/templates")
    assert anns_session.get(page).status_code == 404


def test_an_image_is_pulled_and_deleted(anns_session: ConsoleSession) -> None:
    form = {"reference": "127.0.0.1:9/none:latest"}
    posted(anns_session, "/console/templates/images", form)
    [image] = told(anns_session, "/api/v1/images")["images"]
    assert image["reference"] in anns_session.get("/console/templates").text
    at = f"{anns_session.url}/console/templates/images/{image['image_id']}"
    httpx.delete(at, headers=anns_session.headers, timeout=60).raise_for_status()
    assert told(anns_session, "/api/v1/images")["images"] == []


def test_an_account_has_keys_in_the_form_of_e2b(anns_session: ConsoleSession) -> None:
    form = {"name": "sdk", "format": "e2b", "description": "for notebooks", "scope": "run"}
    page = posted(anns_session, "/console/account/keys", form)
    assert "<code>e2b_" in page
    keys = told(anns_session, "/api/v1/api-keys")["api_keys"]
    [key] = [each for each in keys if each["name"] == "sdk"]
    assert key["description"] == "for notebooks"
    renamed = posted(anns_session, f"/console/account/keys/{key['key_id']}", {"name": "notebook"})
    assert "notebook" in renamed
    assert told(anns_session, f"/api/v1/api-keys/{key['key_id']}")["description"] is None
    [note, *_] = told(anns_session, "/api/v1/notifications")["notifications"]
    path = f"/notifications/{note['notification_id']}"
    posted(anns_session, f"/console/account{path}/delete")
    assert anns_session.get(f"/console/api/api/v1{path}").status_code == 404
    anns_session.call("DELETE", f"/api/v1/api-keys/{key['key_id']}")


def test_an_admin_invites_bills_ends_and_notifies(
    admins_session: ConsoleSession, anns_session: ConsoleSession, template_id: str
) -> None:
    page = posted(admins_session, "/console/admin/invite", {"email": "zoe@example.com"})
    assert "The invitation is sent." in page
    account = told(anns_session, "/api/v1/me")["account_id"]
    form = {"account_id": account, "service_type": "credit", "amount": "2", "description": "sorry"}
    assert "sorry: -2" in posted(admins_session, "/console/admin/charge", form)
    assert "bills of" in posted(admins_session, "/console/admin/bill")
    body = {"name": "to end", "template_id": template_id}
    box = anns_session.call("POST", "/api/v1/sandboxes", body).json()["sandbox_id"]
    anns_session.call("POST", f"/api/v1/sandboxes/{box}/start")
    form = {"sandbox_id": box, "reason": "<b>it mines</b>"}
    assert "to end is stopped" in posted(admins_session, "/console/admin/end", form)
    form = {"title": "<b>Tonight</b>", "message": "we upgrade", "type": "warning"}
    assert "Sent to" in posted(admins_session, "/console/admin/broadcast", form)
    notes = told(anns_session, "/api/v1/notifications")["notifications"]
    assert ("<b>Tonight</b>", "warning") in [(each["title"], each["type"]) for each in notes]
    for action in ("invite", "charge", "bill", "end", "broadcast"):
        assert anns_session.post(f"/console/admin/{action}", form).status_code == 403
    anns_session.call("DELETE", f"/api/v1/sandboxes/{box}")


def test_a_client_is_changed_and_its_tokens_replaced(admins_session: ConsoleSession) -> None:
    base, path = "/console/admin/integrations/clients", "/v1/admin/clients/of-forms"
    form = {"name": "of-forms", "scopes": "chosen", "scope_read": "on", "scope_allocate": "on"}
    page = posted(admins_session, base, form | {"rate": "9/minute"})
    assert "The token, shown only once" in page
    found = told(admins_session, path)
    assert (set(found["scopes"]), found["rate"]) == ({"read", "allocate"}, "9/minute")
    [first] = found["tokens"]
    form = {"scopes": "chosen", "scope_operate": "on", "track_prefix": "z-"}
    posted(admins_session, f"{base}/of-forms", form)
    found = told(admins_session, path)
    assert (found["scopes"], found["rate"], found["track_prefix"]) == (["operate"], None, "z-")
    page = posted(admins_session, f"{base}/of-forms/tokens")
    assert "The token, shown only once" in page
    posted(admins_session, f"{base}/of-forms/tokens/{first['token_id']}/revoke")
    [second] = told(admins_session, path)["tokens"]
    assert second["token_id"] != first["token_id"]
    admins_session.call("DELETE", path)


def test_a_webhook_is_changed_tested_disabled_and_gets_a_new_secret(
    admins_session: ConsoleSession,
) -> None:
    base, path = "/console/admin/integrations/webhooks", "/v1/admin/webhooks"
    form = {"url": "http://127.0.0.1:9/hook", "kinds": "lease.created", "note": "ours"}
    assert "The secret, shown only once" in posted(admins_session, base, form)
    hooks = told(admins_session, path)["webhooks"]
    [hook] = [each["webhook_id"] for each in hooks if each["note"] == "ours"]
    changed = {"url": "http://127.0.0.1:9/other"}
    posted(admins_session, f"{base}/{hook}", changed)
    found = told(admins_session, f"{path}/{hook}")
    assert (found["url"], found["kinds"], found["note"]) == (changed["url"], [], "")
    posted(admins_session, f"{base}/{hook}/newest")
    [delivery, *_] = told(admins_session, f"{path}/{hook}/deliveries")["deliveries"]
    assert delivery["status"] is None  # nobody listens there
    posted(admins_session, f"{base}/{hook}/disable")
    assert not told(admins_session, f"{path}/{hook}")["is_enabled"]
    posted(admins_session, f"{base}/{hook}/enable")
    assert told(admins_session, f"{path}/{hook}")["is_enabled"]
    assert "The secret, shown only once" in posted(admins_session, f"{base}/{hook}/rotate")
    admins_session.call("DELETE", f"{path}/{hook}")


def test_a_volume_is_made_mounted_resized_and_deleted(
    anns_session: ConsoleSession, template_id: str
) -> None:
    posted(anns_session, "/console/volumes", {"name": "models", "size_gb": "2"})
    [volume] = told(anns_session, "/api/v1/volumes")["volumes"]
    at = f"/console/volumes/{volume['volume_id']}"
    posted(anns_session, f"{at}/size", {"size_gb": "3"})
    assert told(anns_session, "/api/v1/volumes")["volumes"][0]["size_gb"] == 3
    form = {"name": "reads", "template_id": template_id, "volumes": "models:/models:ro"}
    page = posted(anns_session, "/console/sandboxes", form)
    path = f"/api/v1/sandboxes/{page.rpartition('/')[2]}"
    [mount] = told(anns_session, path)["volumes"]
    assert (mount["name"], mount["path"], mount["read_only"]) == ("models", "/models", True)
    anns_session.call("DELETE", path)
    gone = f"{anns_session.url}{at}"
    httpx.delete(gone, headers=anns_session.headers, timeout=60).raise_for_status()
    assert told(anns_session, "/api/v1/volumes")["volumes"] == []


def test_tickets_are_moved_up_and_dropped(
    admins_session: ConsoleSession, anns_session: ConsoleSession, console: ServerProcess
) -> None:
    for key in ("k-1", "k-2"):
        headers = {"X-Track-ID": "late-1", "X-Sandbox-Name-Prefix": "none-", "Idempotency-Key": key}
        queued = httpx.post(f"{console.url}/v1/queue", headers=console.track | headers, timeout=60)
        assert queued.status_code == 202
    first, second = waiting(admins_session, "late-1")
    at = f"/console/labs/waiting/{second['ticket_id']}"
    assert anns_session.post(f"{at}/first", {}).status_code == 403
    posted(admins_session, f"{at}/first", {})
    assert [each["urgency"] for each in waiting(admins_session, "late-1")] == [0, 3]
    assert anns_session.post(f"{at}/drop", {}).status_code == 403
    posted(admins_session, f"{at}/drop", {})
    assert waiting(admins_session, "late-1") == [first]
    assert admins_session.post(f"{at}/drop", {}).status_code == 404
    posted(admins_session, f"/console/labs/waiting/{first['ticket_id']}/drop", {})


def waiting(admin: ConsoleSession, track: str) -> list[dict[str, Any]]:
    tickets = told(admin, "/v1/admin/queue")["tickets"]
    return [each for each in tickets if each["track_id"] == track]
