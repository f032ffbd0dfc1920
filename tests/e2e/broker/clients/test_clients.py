"""Clients over HTTP and by the command line, on a real server."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.servers.processes import ServerProcess, run_command, sandyard_serve

SETTINGS = {
    "PARTS": "broker",
    "TRUSTED_PROXIES": "127.0.0.0/8",
    "IP_ALLOWLIST": "10.0.0.0/8",
}
INSIDE = {"X-Forwarded-For": "10.1.2.3"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("clients")
    with sandyard_serve(folder / "data", environment=SETTINGS) as server:
        yield server


def command(server: ServerProcess, *arguments: str) -> tuple[int, str, str]:
    connection = {"SANDYARD_URL": server.url, "SANDYARD_ADMIN_TOKEN": server.admin_token}
    done = run_command("clients", *arguments, environment=connection)
    return done.returncode, done.stdout.strip(), done.stderr


def as_track(server: ServerProcess, token: str, track: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}", "X-Track-ID": track}
    return httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=60)


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.parametrize(
    ("call", "body", "status", "code"),
    [
        ("clients", {"name": "a", "scopes": ["read"], "max_lease": 3}, 400, "INVALID_REQUEST"),
        ("clients", {"name": "bootstrap", "scopes": ["read"]}, 409, "CLIENT_EXISTS"),
        ("webhooks", {"url": "https://example.com/", "kind": ["lease.*"]}, 400, "INVALID_REQUEST"),
        ("webhooks", {"url": "https://example.com:65536/"}, 400, "INVALID_REQUEST"),
        ("webhooks", {"url": "https://example.com/", "note": "\0"}, 400, "INVALID_REQUEST"),
        ("webhooks", {"url": "http://169.254.169.254/"}, 400, "WEBHOOK_ADDRESS_REFUSED"),
        ("webhooks", {"url": "https://10.0.0.1:8443/"}, 400, "WEBHOOK_ADDRESS_REFUSED"),
    ],
)
def test_what_cannot_be_made_is_refused(
    server: ServerProcess, call: str, body: dict[str, Any], status: int, code: str
) -> None:
    headers = server.admin | INSIDE
    answer = httpx.post(f"{server.url}/v1/admin/{call}", headers=headers, json=body, timeout=60)
    assert code_of(answer) == (status, code)


def test_a_webhook_is_not_moved_to_a_private_address(server: ServerProcess) -> None:
    webhooks, headers = f"{server.url}/v1/admin/webhooks", server.admin | INSIDE
    made = httpx.post(
        webhooks, headers=headers, json={"url": "https://example.com:65535/"}, timeout=60
    )
    assert made.status_code == 201
    one = f"{webhooks}/{made.json()['webhook_id']}"
    moved = httpx.patch(one, headers=headers, json={"url": "http://127.0.0.1/"}, timeout=60)
    assert code_of(moved) == (400, "WEBHOOK_ADDRESS_REFUSED")
    assert httpx.get(one, headers=headers, timeout=60).json()["url"] == "https://example.com:65535/"
    assert httpx.delete(one, headers=headers, timeout=60).status_code == 204


def test_from_create_to_delete_by_the_command_line(whole_server: ServerProcess) -> None:
    server = whole_server
    code, token, told = command(
        server,
        *("create", "acme", "--scope", "allocate", "--track-prefix", "acme-"),
        *("--rate", "6/hour", "--max-leases", "2"),
    )
    assert code == 0, told
    assert "shown only once" in told
    first = as_track(server, token, "acme-1")
    assert first.status_code == 201
    assert as_track(server, token, "acme-1").json() == first.json()
    assert code_of(as_track(server, token, "other-1")) == (403, "TRACK_NOT_ALLOWED")
    assert as_track(server, token, "acme-2").status_code == 201
    assert code_of(as_track(server, token, "acme-3")) == (409, "CLIENT_LEASE_LIMIT")
    headers = {"Authorization": f"Bearer {token}", "X-Track-ID": "acme-1"}
    path = f"{server.url}/v1/sandboxes/{first.json()['sandbox_id']}/mark-for-deletion"
    assert httpx.post(path, headers=headers, timeout=60).status_code == 200
    assert as_track(server, token, "acme-3").status_code == 201
    limited = as_track(server, token, "acme-4")
    assert code_of(limited) == (429, "CLIENT_RATE_LIMIT_EXCEEDED")
    assert int(limited.headers["Retry-After"]) > 0

    assert command(server, "create", "acme", "--scope", "read")[0] == 5
    _, second, _ = command(server, "add-token", "acme", "--expires-days", "1")
    _, listed, _ = command(server, "list")
    assert "acme allocate acme- 6/hour 2" in " ".join(listed.split())
    _, tokens, _ = command(server, "tokens", "acme")
    assert [line.split()[0] for line in tokens.splitlines()[1:]] == [
        token.split(".")[1],
        second.split(".")[1],
    ]
    assert second.split(".")[2] not in tokens
    assert command(server, "revoke", "acme", second.split(".")[1])[0] == 0
    assert command(server, "delete", "acme")[:2] == (0, "deleted acme")
    code, _, told = command(server, "delete", "acme")
    assert (code, "There is no such client." in told) == (3, True)
    for wrong in (["create", "Acme", "--scope", "read"], ["create", "b", "--scope", "all"]):
        assert command(server, *wrong)[0] == 2


@pytest.mark.parametrize(
    ("scope", "statuses"),
    [
        ("allocate", {"stats": 403, "expire": 403, "clients": 403, "allocate": 201}),
        ("read", {"stats": 200, "expire": 403, "clients": 403, "allocate": 403}),
        ("operate", {"stats": 200, "expire": 200, "clients": 403, "allocate": 403}),
        ("admin", {"stats": 200, "expire": 200, "clients": 200, "allocate": 403}),
    ],
)
def test_each_scope_opens_its_calls(
    server: ServerProcess, scope: str, statuses: dict[str, int]
) -> None:
    body = {"name": f"of-{scope}", "scopes": [scope]}
    with httpx.Client(base_url=f"{server.url}/v1", headers=INSIDE, timeout=60) as api:
        made = api.post("/admin/clients", json=body, headers=server.admin)
        assert made.status_code == 201, made.text
        headers = {"Authorization": f"Bearer {made.json()['token']}", "X-Track-ID": scope}
        answers = {
            "stats": api.get("/admin/stats", headers=headers),
            "expire": api.post("/admin/expire", headers=headers),
            "clients": api.get("/admin/clients", headers=headers),
            "allocate": api.post("/allocate", headers=headers),
        }
        assert {name: each.status_code for name, each in answers.items()} == statuses
        refused = {each.text for each in answers.values() if each.status_code == 403}
        assert all("INSUFFICIENT_SCOPE" in each for each in refused)


def test_operators_call_from_allowed_networks_alone(server: ServerProcess) -> None:
    def stats(**headers: str) -> httpx.Response:
        return httpx.get(f"{server.url}/v1/admin/stats", headers=server.admin | headers, timeout=60)

    assert stats(**INSIDE).status_code == 200
    for forged in ("203.0.113.9", "10.1.2.3, 203.0.113.9", "unknown"):
        assert code_of(stats(**{"X-Forwarded-For": forged})) == (403, "ADDRESS_NOT_ALLOWED")
    assert code_of(stats()) == (403, "ADDRESS_NOT_ALLOWED")
    assert as_track(server, server.track_token, "anywhere").status_code == 201


def test_bad_input_is_told(server: ServerProcess) -> None:
    bodies = [
        {"name": "Upper", "scopes": ["read"]},
        {"name": "a", "scopes": []},
        {"name": "a", "scopes": ["everything"]},
        {"name": "a", "scopes": ["read"], "rate": "often"},
        {"name": "a", "scopes": ["read"], "max_leases": 0},
        {"name": "a", "scopes": ["read"], "track_prefix": "a b"},
    ]
    with httpx.Client(base_url=server.url, headers=server.admin | INSIDE, timeout=60) as api:
        for body in bodies:
            assert code_of(api.post("/v1/admin/clients", json=body)) == (400, "INVALID_REQUEST")
        assert code_of(api.get("/v1/admin/clients/nobody")) == (404, "CLIENT_NOT_FOUND")
        for url in ("ftp://x", "https://user@host/", "https://", "x" * 3000):
            refused = api.post("/v1/admin/webhooks", json={"url": url})
            assert code_of(refused) == (400, "INVALID_REQUEST")
        assert code_of(api.get("/v1/admin/webhooks/whk-1")) == (404, "WEBHOOK_NOT_FOUND")
