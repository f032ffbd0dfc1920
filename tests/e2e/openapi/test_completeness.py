"""The command line does what the API does, and generated files follow the document."""

import re
from pathlib import Path
from typing import Any

import click
from generate_operations import rendered

from sandyard.entrypoints.cli import sandyard
from tests.support.documents.documented_calls import operations_of
from tests.unit.entrypoints.cli.test_rows import ROWS

MORE_THAN_A_ROW = {
    "add_ssh_key": "ssh-key add",
    "allocate_sandbox": "lease allocate",
    "create_sandbox": "sandbox create",
    "create_sandbox_token": "sandbox open",
    "export_readings": "device export",
    "extend_lease": "lease extend",
    "get_leased_sandbox": "lease exec",
    "get_month_to_date": "usage",
    "get_preview_log": "preview logs",
    "get_sandbox_logs": "sandbox logs",
    "get_ssh_address": "ssh-config",
    "import_image": "image import",
    "leave_queue": "lease allocate",
    "list_sandboxes": "sandbox ls",
    "list_usage": "usage",
    "log_in": "login",
    "mark_sandbox_for_deletion": "lease release",
    "pull_image": "image pull",
    "queue_for_sandbox": "lease allocate",
    "read_file": "sandbox cp",
    "read_folder_tar": "sandbox cp",
    "recycle_sandbox": "sandbox rm",
    "register_device": "device register",
    "replace_sandbox": "lease replace",
    "restart_program": "sandbox program",
    "run_command": "sandbox exec",
    "send_readings": "device send",
    "start_program": "sandbox program",
    "start_sandbox": "sandbox start",
    "stop_program": "sandbox program",
    "stop_sandbox": "sandbox stop",
    "write_file": "sandbox cp",
    "write_folder_tar": "sandbox cp",
    "write_project_tar": "project push",
}
"""Commands that are written by hand, as they make several calls, stream, or ask."""
BY_MAIL = "its token comes by e-mail, as a link to the console"
NOT_IN_THE_COMMAND_LINE = {
    "sign_up": BY_MAIL,
    "verify_email": BY_MAIL,
    "resend_verification": BY_MAIL,
    "forgot_password": BY_MAIL,
    "reset_password": BY_MAIL,
    "change_password": "takes a password, and ends all logins: the console asks for both",
    "delete_account": "takes a password, and can't be undone: the console asks for both",
    "log_out": "a profile has an API key, which `key rm` ends",
    "begin_oidc_login": "a browser is sent to the identity provider",
    "finish_oidc_login": "a browser comes back from the identity provider",
    "create_terminal_token": "a browser's WebSocket; `sandbox shell` opens a terminal",
    "release_lease": "`lease release` releases by the sandbox, as the caller may have several",
    "change_project_files": "`project push` replaces all files, by `write_project_tar`",
    "get_health": "for load balancers",
    "get_readiness": "for load balancers",
    "get_metrics": "for Prometheus",
}


def test_every_operation_has_a_command_or_a_reason(document: dict[str, Any]) -> None:
    operations = {each["operationId"] for each in operations_of(document).values()}
    by_rows = {row.operation for _, row in ROWS.values()}
    assert by_rows | MORE_THAN_A_ROW.keys() | NOT_IN_THE_COMMAND_LINE.keys() == operations
    assert not by_rows & NOT_IN_THE_COMMAND_LINE.keys()
    assert not MORE_THAN_A_ROW.keys() & NOT_IN_THE_COMMAND_LINE.keys()


def test_the_commands_written_by_hand_exist() -> None:
    for words in set(MORE_THAN_A_ROW.values()):
        found: click.Command | None = sandyard
        for word in words.split():
            assert isinstance(found, click.Group)
            found = found.get_command(click.Context(found), word)
        assert found is not None, words


def test_generated_files_are_those_of_the_document(document: dict[str, Any]) -> None:
    for path, text in rendered(document).items():
        assert path.read_text() == text, (
            f"{path.name} is out of date: run clients/python/generate_operations.py"
        )


def test_the_page_names_every_group(document: dict[str, Any]) -> None:
    page = (Path(__file__).parents[3] / "docs/cli.md").read_text()
    groups = {path.split()[0] for path in ROWS}
    assert {name for name in groups if not re.search(rf"`{name}[ `]", page)} == set()
