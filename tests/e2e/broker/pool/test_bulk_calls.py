"""Deletions of many sandboxes over HTTP."""

from typing import Any

import pytest

from tests.e2e.broker.requests import (
    admin_token,
    assert_error,
    inspect,
    lease,
    new_track,
    send,
)
from tests.support.servers.processes import ServerProcess


def post(server: ServerProcess, call: str) -> dict[str, Any]:
    answer = send(server, "POST", f"/v1/admin/{call}", [admin_token(server)])
    assert answer.status == 200, answer.body
    return answer.json


def test_a_dry_run_and_then_the_deletion_of_a_tracks_sandbox(server: ServerProcess) -> None:
    track = new_track()
    sandbox_id = lease(server, track)["sandbox_id"]
    call = f"bulk-delete?status=allocated&track={track}"
    found: dict[str, Any] = {
        "matched": 1,
        "skipped": 0,
        "sandbox_ids": [sandbox_id],
        "next_cursor": None,
    }
    found["not_found"] = []
    rehearsed = post(server, f"{call}&dry_run=true")
    assert rehearsed == {"dry_run": True, "deleted": 0, "changed": 0, **found}
    assert inspect(server, sandbox_id)["status"] == "allocated"
    assert post(server, call) == {"dry_run": False, "deleted": 1, "changed": 1, **found}
    assert inspect(server, sandbox_id)["status"] == "pending_deletion"
    assert post(server, call)["matched"] == 0


def test_a_sandbox_that_is_stale_by_an_operator_is_deleted_by_its_name_alone(
    server: ServerProcess,
) -> None:
    answer = send(
        server, "GET", "/v1/admin/sandboxes?status=available&limit=1", [admin_token(server)]
    )
    [free] = answer.json["sandboxes"]
    post(server, f"sandboxes/{free['sandbox_id']}/quarantine")
    assert post(server, "auto-delete-stale?grace_period_hours=0")["matched"] == 0
    done = post(server, f"bulk-delete?status=stale&name={free['name']}")
    assert done["sandbox_ids"] == [free["sandbox_id"]]


@pytest.mark.parametrize(
    "call",
    [
        "bulk-delete",
        "bulk-delete?status=available",
        "bulk-delete?status=pending_deletion",
        "bulk-delete?status=everything",
        "bulk-delete?status=stale&older_than_hours=-1",
        "bulk-delete?status=stale&older_than_hours=nan",
        "bulk-delete?status=stale&limit=0",
        "bulk-delete?status=stale&limit=1001",
        "bulk-delete?status=stale&cursor=Zm9v",
        "auto-delete-stale?grace_period_hours=soon",
        "auto-delete-stale?dry_run=maybe",
    ],
)
def test_an_invalid_filter_deletes_nothing(server: ServerProcess, call: str) -> None:
    answer = send(server, "POST", f"/v1/admin/{call}", [admin_token(server)])
    assert_error(answer, 400, "INVALID_CURSOR" if "cursor" in call else "INVALID_REQUEST")


def test_a_filter_in_a_body_changes_nothing(server: ServerProcess) -> None:
    track = new_track()
    sandbox_id = lease(server, track)["sandbox_id"]
    path = f"/v1/admin/bulk-delete?status=allocated&track={track}"
    headers = [admin_token(server), ("Content-Type", "application/json")]
    assert_error(send(server, "POST", path, headers, b'{"dry_run": true}'), 400, "INVALID_REQUEST")
    assert inspect(server, sandbox_id)["status"] == "allocated"
