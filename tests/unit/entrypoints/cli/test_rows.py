"""Rows: each names an operation and fields that exist, and its example is a valid command line."""

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click
import pytest
from sandyard_client.operations import operations

from sandyard.entrypoints.cli import sandyard
from sandyard.entrypoints.cli.calls.fields import values_of
from sandyard.entrypoints.cli.calls.row import Row, Rows


def rows(group: click.Group, path: str = "") -> Iterator[tuple[str, Rows, Row]]:
    context = click.Context(group)
    if isinstance(group, Rows):
        yield from ((f"{group.path} {each.name}", group, each) for each in group.rows.values())
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from rows(command, f"{path} {name}")


ROWS = {path: (group, row) for path, group, row in rows(sandyard)}


def parsed(path: str, *arguments: str) -> dict[str, Any]:
    group, row = ROWS[path]
    command = group.get_command(click.Context(group), row.name)
    assert command is not None
    given = command.make_context(path, list(arguments)).params
    fields = {name: each for name, each in given.items() if name.startswith("field_")}
    return values_of(operations()[row.operation], fields)


@pytest.mark.parametrize("path", ROWS)
def test_each_row_names_what_exists_and_its_example_can_be_typed(path: str) -> None:
    _, row = ROWS[path]
    operation = operations()[row.operation]
    fields = {each["name"] for each in operation["fields"]}
    known = {*row.arguments.split(), *row.needed, *row.fixed}
    assert known <= fields
    shown = {each.rstrip("*").rpartition("=")[2].partition(".")[0] for each in row.columns.split()}
    if not row.items:
        assert shown <= set(operation.get("answer_fields", ()))
    assert row.shown_once in {"", *operation.get("answer_fields", ())}
    values = parsed(path, *shlex.split(row.example))
    needed = {each["name"] for each in operation["fields"] if each.get("required")}
    assert needed <= values.keys() | row.fixed.keys()


def test_no_two_options_of_a_row_have_the_same_name() -> None:
    for path, (group, row) in ROWS.items():
        command = group.get_command(click.Context(group), row.name)
        assert command is not None
        names = [name for each in command.params for name in each.opts]
        assert sorted(names) == sorted(set(names)), path


def test_values_are_sent_as_the_document_types_them() -> None:
    values = parsed(
        "sandbox change",
        *("my-box", "--cpu-spec", "2", "--public-ports", "80", "--public-ports", "443"),
        *("--idle-stop-minutes", "null", "--wake-on-request", "--no-is-public"),
    )
    assert values == {
        "sandbox_id": "my-box",
        "cpu_spec": 2.0,
        "public_ports": [80, 443],
        "idle_stop_minutes": None,
        "wake_on_request": True,
        "is_public": False,
    }


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5_400), ("2d", 172_800), ("45s", 45)])
def test_a_time_may_be_a_span_from_now(text: str, seconds: int) -> None:
    now = datetime.now(UTC).timestamp()
    until = parsed("pool hold", "lab-1", "--reason", "r", "--until", text)["until"]
    assert abs(until - now - seconds) <= 60
    expires = parsed("clients add-token", "acme", "--expires-days", "90")["expires_at"]
    assert abs(datetime.fromisoformat(expires).timestamp() - now - 90 * 86_400) <= 60


def test_a_time_may_be_a_date_of_this_computers_zone() -> None:
    values = parsed("reservations create", "3", "--to", "2026-12-24T18:00", "--from", "1795000000")
    assert values["to"] == int(datetime(2026, 12, 24, 18).astimezone().timestamp())
    assert values["from"] == 1795000000
    with pytest.raises(click.BadParameter, match="is not a time"):
        parsed("reservations create", "3", "--to", "tomorrow")


def test_plurals_and_the_other_names_of_list_and_delete_are_known() -> None:
    context = click.Context(sandyard)
    projects, project = (sandyard.get_command(context, name) for name in ("projects", "project"))
    assert projects is project
    assert isinstance(project, Rows)
    for one, other in (("list", "ls"), ("delete", "rm")):
        assert project.get_command(context, one) is project.get_command(context, other)
    assert sandyard.get_command(context, "devices") is not sandyard.get_command(context, "device")
