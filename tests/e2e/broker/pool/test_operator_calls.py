"""What operators do for a track over HTTP, and who is recorded to have done it."""

import json
from typing import Any

import httpx

from tests.e2e.broker.requests import (
    Answer,
    Header,
    admin_token,
    assert_error,
    inspect,
    lease,
    new_track,
    send,
    token,
)
from tests.support.servers.processes import ServerProcess

JSON = ("Content-Type", "application/json")


def call(server: ServerProcess, path: str, body: Any, *headers: Header) -> Answer:
    sent = [*(headers or [admin_token(server)]), JSON]
    return send(server, "POST", f"/v1/admin/{path}", sent, json.dumps(body).encode())


def story(server: ServerProcess, track: str) -> list[dict[str, Any]]:
    answer = send(server, "GET", f"/v1/admin/events?track={track}", [admin_token(server)])
    assert answer.status == 200, answer.body
    events: list[dict[str, Any]] = answer.json["events"]
    return events


def test_an_operators_extension_and_replacement_name_the_operator(server: ServerProcess) -> None:
    track = new_track()
    leased = lease(server, track)
    sandbox_id = leased["sandbox_id"]
    extend = f"sandboxes/{sandbox_id}/extend"
    key = ("Idempotency-Key", "once")
    ana = (admin_token(server), ("X-Operator", "ana"))
    for _ in range(2):
        extended = call(server, extend, {"minutes": 10}, *ana, key)
        assert extended.json["expires_at"] == leased["expires_at"] + 600
    client = {"name": f"desk-{track}", "scopes": ["operate"]}
    desk = ("Authorization", f"Bearer {call(server, 'clients', client).json['token']}")
    replaced = call(
        server, f"sandboxes/{sandbox_id}/replace", {"reason": "no network"}, desk, ana[1]
    )
    assert replaced.status == 200, replaced.body
    assert inspect(server, sandbox_id)["replaced_by"] == replaced.json["sandbox_id"]
    actors = {(each["kind"], each["actor"]) for each in story(server, track)}
    assert actors == {
        ("lease.created", f"track:{track}"),
        ("lease.extended", "operator:ana"),
        ("lease.replaced", f"operator:desk-{track}"),
        ("lease.created", f"operator:desk-{track}"),
    }


def test_changes_of_clients_and_webhooks_name_the_operator(server: ServerProcess) -> None:
    ana = (admin_token(server), ("X-Operator", "ana"))
    name = f"named-{new_track()}"
    made = call(server, "clients", {"name": name, "scopes": ["admin"]}, *ana).json
    own = [("Authorization", f"Bearer {made['token']}"), JSON]
    path = f"/v1/admin/clients/{name}"
    body = json.dumps({"scopes": ["admin"], "max_leases": 3}).encode()
    assert send(server, "PUT", path, own, body).status == 200
    webhook = call(server, "webhooks", {"url": "https://example.com/"}, *own).json["webhook_id"]
    call(server, f"webhooks/{webhook}/rotate-secret", {}, *ana)
    assert send(server, "DELETE", f"/v1/admin/webhooks/{webhook}", list(ana)).status == 204
    assert send(server, "DELETE", path, list(ana)).status == 204
    assert actors_of(server, f"client:{name}") == [
        ("client.created", "operator:ana"),
        ("client.token_added", "operator:ana"),
        ("client.changed", f"operator:{name}"),
        ("client.deleted", "operator:ana"),
    ]
    assert actors_of(server, webhook) == [
        ("webhook.created", f"operator:{name}"),
        ("webhook.secret_rotated", "operator:ana"),
        ("webhook.deleted", "operator:ana"),
    ]


def actors_of(server: ServerProcess, subject: str) -> list[tuple[str, str]]:
    path = f"/v1/admin/events?subject={subject}"
    events = send(server, "GET", path, [admin_token(server)]).json["events"]
    return [(each["kind"], each["actor"]) for each in reversed(events)]


def test_a_tracks_clean_up_ends_the_lease_that_an_operator_moved(server: ServerProcess) -> None:
    track = new_track()
    old = lease(server, track)["sandbox_id"]
    new = call(server, f"sandboxes/{old}/replace", {"reason": "broken"}).json["sandbox_id"]
    headers = [token(server), ("X-Track-ID", track)]
    marked = send(server, "POST", f"/v1/sandboxes/{old}/mark-for-deletion", headers)
    assert (marked.json["sandbox_id"], marked.json["status"]) == (new, "pending_deletion")
    released = send(server, "POST", "/v1/release", headers)
    assert (released.status, released.json) == (200, marked.json)
    nobody = [token(server), ("X-Track-ID", new_track())]
    assert_error(send(server, "POST", "/v1/release", nobody), 404, "LEASE_NOT_FOUND")


def test_a_sandbox_without_a_lease_is_neither_extended_nor_replaced(server: ServerProcess) -> None:
    listed = send(
        server, "GET", "/v1/admin/sandboxes?status=available&limit=1", [admin_token(server)]
    )
    path = f"sandboxes/{listed.json['sandboxes'][0]['sandbox_id']}"
    assert_error(call(server, f"{path}/extend", {"minutes": 1}), 409, "TRANSITION_NOT_ALLOWED")
    assert_error(call(server, f"{path}/replace", {"reason": "x"}), 409, "TRANSITION_NOT_ALLOWED")
    unnamed = (admin_token(server), ("X-Operator", "no name"))
    assert_error(call(server, f"{path}/hold", {"reason": "x"}, *unnamed), 400, "INVALID_REQUEST")


def test_names_that_no_sandbox_has_are_reported(server: ServerProcess) -> None:
    listed = send(
        server, "GET", "/v1/admin/sandboxes?status=available&limit=1", [admin_token(server)]
    )
    name = listed.json["sandboxes"][0]["name"]
    names = {"names": [name, "nobody"]}
    done = call(server, "bulk-quarantine", {"reason": "wrong image", **names}).json
    assert (done["changed"], done["not_found"]) == (1, ["nobody"])
    done = call(server, "bulk-restore", names).json
    assert (done["changed"], done["not_found"]) == (1, ["nobody"])
    assert call(server, "bulk-restore?dry_run=true", names).json["not_found"] == ["nobody", name]


def test_a_clean_up_says_that_the_provider_is_away(server: ServerProcess, provider: str) -> None:
    track = new_track()
    sandbox_id = lease(server, track)["sandbox_id"]
    headers = [token(server), ("X-Track-ID", track)]
    assert send(server, "POST", f"/v1/sandboxes/{sandbox_id}/mark-for-deletion", headers).json
    httpx.patch(f"{provider}/_sim", json={"error_rate": 1.0}, timeout=60).raise_for_status()
    try:
        away = send(server, "POST", "/v1/admin/cleanup", [admin_token(server)])
    finally:
        httpx.patch(f"{provider}/_sim", json={"error_rate": 0.0}, timeout=60).raise_for_status()
    assert_error(away, 503, "PROVIDER_UNAVAILABLE")
