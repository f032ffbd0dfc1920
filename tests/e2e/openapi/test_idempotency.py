"""Every call that makes something takes an `Idempotency-Key`; the others say why they need none."""

import re
from pathlib import Path
from typing import Any

from tests.contract.idempotency.test_repeated_calls import OPERATIONS
from tests.support.documents.documented_calls import operations_of

PAGE = Path(__file__).parents[3] / "docs/idempotency.md"
OWN = {
    "allocate_sandbox": "SPEC 3.2: the key names the lease",
    "queue_for_sandbox": "the key names the ticket",
    "release_lease": "the key names the lease",
    "extend_lease": "the lease remembers its last ten keys",
    "extend_pool_lease": "the lease remembers its last ten keys",
    "reserve_sandboxes": "the key is the reservation's, for as long as it is there",
    "charge_account": "the key is the bill's, for ever",
}
MORE = {"invite_user"}
"""Tested by what it sends: it makes nothing that could be listed."""
STATE, JOB, NATURAL = "sets a state", "runs a job", "finds what is there by its own name"
TOKEN = "returns a signed token, of which nothing is stored"
NEEDS_NONE = {
    **dict.fromkeys(
        (
            *("activate_user", "deactivate_user", "end_sandbox", "activate_api_key"),
            *("deactivate_api_key", "log_out", "change_password", "delete_account"),
            *("read_all_notifications", "read_notification", "archive_project"),
            *("make_project_default", "unarchive_project", "start_sandbox", "extend_sandbox"),
            *("start_program", "stop_program", "restart_program", "stop_sandbox"),
            *("signal_command", "move_file", "make_folder", "mark_sandbox_for_deletion"),
            *("bulk_delete_pool_sandboxes", "bulk_restore_pool_sandboxes"),
            *("bulk_quarantine_pool_sandboxes", "bulk_hold_pool_sandboxes"),
            *("auto_delete_stale_pool_sandboxes", "quarantine_pool_sandbox"),
            *("release_pool_sandbox", "restore_pool_sandbox", "retry_pool_sandbox_deletion"),
            *("hold_pool_sandbox", "rotate_webhook_secret", "replay_webhook_event"),
        ),
        STATE,
    ),
    **dict.fromkeys(
        ("run_billing", "clean_up_pool", "expire_leases", "sync_pool", "run_pool_job"), JOB
    ),
    **dict.fromkeys(
        (
            *("create_terminal_token", "create_project_token", "create_sandbox_token"),
            *("log_in", "begin_oidc_login", "finish_oidc_login"),
        ),
        TOKEN,
    ),
    "replace_sandbox": "names the sandbox: a repeat finds the one that replaced it",
    "replace_pool_sandbox": "names the sandbox: a repeat finds the one that replaced it",
    "look_at_preview": "returns a picture, of which nothing is stored",
    "publish_project": "a project has one publication, and one attempt at a time",
    "restore_project_version": "a repeat finds the files so, and makes no version",
    "sync_preview": "a project has one preview: a repeat finds it (SPEC 6)",
    "send_readings": "a reading is known by its batch id (SPEC 4)",
    "register_device": "a device is known by its hardware id",
    "sign_up": "an address signs up once, and the caller has no account yet",
    "verify_email": "its token is used up",
    "reset_password": "its token is used up",
    "forgot_password": "at most one mail in a while",
    "resend_verification": "at most one mail in a while",
    "import_image": "an upload of any size can't be compared; a repeat shares the stored parts",
    "write_command_input": "a stream of input has no identity",
    "add_ssh_key": "it is unique: a repeat is 409 SSH_KEY_TAKEN",
    "create_client": "its name is unique: a repeat is 409 CLIENT_EXISTS",
    "add_client_token": "operators see all tokens of a client, and revoke the one that was lost",
    "create_webhook": "operators see all webhooks, and delete the one that was lost",
    "create_device_key": "operators see all keys, and delete the one that was lost",
}


def test_each_call_takes_a_key_or_is_an_exception_with_a_reason(document: dict[str, Any]) -> None:
    calls = operations_of(document)
    posts = {each["operationId"]: each for call, each in calls.items() if call.startswith("POST")}
    with_key = {name for name, each in posts.items() if has_key(each)}
    assert with_key == {*OWN, *MORE, *(n for n in OPERATIONS if " " not in n)}
    assert sorted(posts.keys() - with_key) == sorted(NEEDS_NONE)


def test_the_page_names_each_call_that_takes_a_key(document: dict[str, Any]) -> None:
    shown = set(re.findall(r"`POST ([^`]+)`", PAGE.read_text()))
    expected = {
        call.removeprefix("POST ")
        for call, operation in operations_of(document).items()
        if call.startswith("POST") and has_key(operation)
    }
    e2b = {f"/e2b{each.removeprefix('POST ')}" for each in OPERATIONS if " " in each}
    templates = {"/e2b/v2/templates", "/e2b/v3/templates"}
    assert shown == expected | e2b | templates


def has_key(operation: dict[str, Any]) -> bool:
    names = {each["name"].lower() for each in operation.get("parameters", ())}
    return "idempotency-key" in names
