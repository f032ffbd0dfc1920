"""Things of every kind whose names, texts and addresses are markup that would run a script."""

import time
from dataclasses import dataclass
from urllib.parse import quote

import httpx

from tests.e2e.console.readings import send_reading
from tests.e2e.console.sessions import ConsoleSession
from tests.support.servers.processes import ServerProcess

RUN = "window.ran=1"
TAGS = f"<img src=x onerror={RUN}><script>{RUN}</script>"
QUOTES = f"\"'><svg onload={RUN}>"
NAME = QUOTES + TAGS
DEVICE = "AA:BB:CC:DD:EE:03"
TEMPLATE = "{{7*191}}${7*191}"
FILE = f"<img src=x onerror={RUN}>'\"`{TEMPLATE}.txt"
URL = f"http://127.0.0.1:9/{QUOTES}{TAGS}".replace(" ", "%20")


@dataclass(frozen=True)
class Marked:
    """The ids of what was made."""

    leased: str
    webhook: str
    device: str
    project: str
    template: str
    sandbox: str
    """One that runs, with such names in its files, variables and log."""


def make_marked(console: ServerProcess, provider: str, ada: ConsoleSession) -> Marked:
    leased, webhook = _pool(console, provider)
    _device(console)
    project = _project(ada)
    template = _template(ada)
    return Marked(leased, webhook, DEVICE, project, template, _sandbox(ada, project))


def _pool(console: ServerProcess, provider: str) -> tuple[str, str]:
    httpx.post(f"{provider}/api/sandbox", json={"name": NAME}, timeout=60).raise_for_status()
    with httpx.Client(
        base_url=f"{console.url}/v1/admin", headers=console.admin, timeout=30
    ) as admin:
        admin.post("/sync").raise_for_status()
        leased = _lease(console)
        kept = {"count": 1, "track_prefix": "a", "note": NAME, "to": int(time.time()) + 3600}
        admin.post("/reservations", json=kept).raise_for_status()
        hook = admin.post("/webhooks", json={"url": URL, "note": NAME}).raise_for_status().json()
        client = {"name": "marked", "scopes": ["read"]}
        admin.post("/clients", json=client).raise_for_status()
        free = admin.get("/sandboxes", params={"status": "available", "name": "sandbox-"}).json()
        broken = free["sandboxes"][0]["sandbox_id"]
        admin.post(f"/sandboxes/{broken}/quarantine", json={"reason": NAME}).raise_for_status()
    return leased, str(hook["webhook_id"])


def _lease(console: ServerProcess) -> str:
    """The one that the provider named so; another that nobody has is waited for."""
    wanted = {"X-Sandbox-Name-Prefix": NAME[:20], "X-Track-ID": "t"}
    track = console.track | wanted | {"X-Instruqt-Track-ID": NAME}
    leased = (
        httpx.post(f"{console.url}/v1/allocate", headers=track, timeout=60)
        .raise_for_status()
        .json()
    )
    waiting = console.track | {"X-Sandbox-Name-Prefix": NAME, "X-Track-ID": "late"}
    httpx.post(f"{console.url}/v1/queue", headers=waiting, timeout=60).raise_for_status()
    return str(leased["sandbox_id"])


def _device(console: ServerProcess) -> None:
    made = httpx.post(
        f"{console.url}/telemetry/v1/api-keys",
        json={"description": NAME},
        headers=console.operator,
        timeout=60,
    ).json()
    send_reading(console, made["api_key"], NAME[:64], hardware_id=DEVICE)


def _project(ada: ConsoleSession) -> str:
    ada.call("PATCH", "/api/v1/me", {"full_name": NAME})
    ada.call("POST", "/api/v1/api-keys", {"name": NAME[:100], "scope": "read"})
    ada.call(
        "POST", "/api/v1/admin/notifications", {"title": NAME[:100], "message": NAME + "x" * 90}
    )
    made = ada.call("POST", "/api/v1/projects", {"name": NAME[:100]}).json()["project_id"]
    page = {"path": "a&b.html", "content": f"</textarea>{NAME}", "encoding": "utf-8"}
    ada.call("PUT", f"/api/v1/projects/{made}/files", {"files": [page], "expected_version": 0})
    return str(made)


def _template(ada: ConsoleSession) -> str:
    body = {"name": NAME[:100], "description": NAME, "category": "web", "language": "any"}
    made = ada.call("POST", "/api/v1/templates", body | {"repository_url": "builtin:static"})
    return str(made.json()["template_id"])


def _sandbox(ada: ConsoleSession, project: str) -> str:
    found = ada.call("GET", "/api/v1/templates?visibility=official&q=static").json()
    body = {"name": NAME[:100], "template_id": found["templates"][0]["template_id"]}
    made = ada.call("POST", "/api/v1/sandboxes", body | {"project_id": project}).json()
    path = f"/api/v1/sandboxes/{made['sandbox_id']}"
    ada.call("PUT", f"{path}/env/MARKUP", {"value": NAME})
    ada.call("POST", f"{path}/start")
    ada.call("PUT", f"{path}/files?path={quote('/workspace/' + FILE, safe='')}", NAME)
    return str(made["sandbox_id"])
