"""Makes commands of rows: a row names an operation of the API, whose document has the rest."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.connecting import ServerChoice, connected, server_command
from sandyard.entrypoints.cli.showing import Column, View, columns_of

if TYPE_CHECKING:
    from sandyard_client import Client
    from sandyard_client.operations import Operation

_PATIENCE_SEC = 10.0
_DONE = {"rm": "removed", "delete": "deleted", "revoke": "revoked", "stop": "stopped"}
"""What is printed of something that is gone, before its id."""
_SAME = {"list": "ls", "ls": "list", "delete": "rm", "rm": "delete"}
EVENT_COLUMNS = "time=at kind subject by=actor reason part* id=event_id*"
ALL = " "
"""The columns of a row that shows every field."""


@dataclass(frozen=True)
class Row:
    """A command: one call of an operation. Its path is taken by arguments, the rest by options."""

    name: str
    operation: str
    example: str = ""
    """What follows the command's name."""
    arguments: str = ""
    """Further fields that are arguments."""
    columns: str = ""
    """What is shown of the answer; default: the group's, else all of it."""
    items: str = ""
    """The list in the answer whose items are shown."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Fields whose options have other names."""
    needed: Collection[str] = ()
    """Further fields that must be given."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Fields that may be left out."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Options of a listing that keep the items whose field is true."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the command sets."""
    is_raw: bool = False
    """Whether the answer is written as it is, to a file or standard output."""
    shown_once: str = ""
    """The field that is shown only once: it alone goes to standard output."""
    more: str = ""
    """Further help."""


class Rows(click.Group):
    """A group of commands; those made of rows are built when they are needed."""

    def __init__(
        self, path: str, rows: Sequence[Row] = (), *, columns: str = "", **attributes: Any
    ) -> None:
        """The path is what is typed: `pool`, or `sandbox env` in another group."""
        super().__init__(path.rpartition(" ")[2], **attributes)
        self.path = path
        self.rows = {each.name: each for each in rows}
        self._columns = columns
        examples = [f"  sandyard {path} {each.name} {each.example}".rstrip() for each in rows]
        begun = self.epilog or "\b\nExamples:\n"
        self.epilog = begun.rstrip("\n") + "".join(f"\n{each}" for each in examples)

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*super().list_commands(context), *self.rows})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in {*self.commands, *self.rows}:
            name = _SAME.get(name, name)
        if name not in self.commands and name in self.rows:
            self.add_command(RowCommand(self.rows[name], self).made())
        return super().get_command(context, name)

    def server_command(
        self, name: str, *, watch: bool = False
    ) -> Callable[[Callable[..., Any]], click.Command]:
        """A command that is more than one call. All of these show the same examples."""

        def decorate(function: Callable[..., Any]) -> click.Command:
            made = server_command(name, watch=watch, epilog=self.epilog)(function)
            self.add_command(made)
            return made

        return decorate

    def columns_for(self, row: Row, known: Sequence[str]) -> Sequence[Column]:
        """The row's own, or those of the group that are fields of the answer."""
        if row.columns:
            return columns_of(row.columns)
        return tuple(each for each in columns_of(self._columns) if each.name in known)


@dataclass
class RowCommand:
    row: Row
    group: Rows

    @cached_property
    def operation(self) -> "Operation":
        from sandyard_client.operations import operations

        return operations()[self.row.operation]

    def made(self) -> click.Command:
        from sandyard.entrypoints.cli.calls.fields import parameters

        is_listing = self.is_listing
        epilog = f"\b\nExamples:\n  sandyard {self.group.path} {self.row.name} {self.row.example}"
        decorate = server_command(self.row.name, watch=is_listing, epilog=epilog)
        command = decorate(self._run)
        command.params = [*parameters(self.row, self.operation), *command.params]
        command.help = self._help()
        return command

    @property
    def is_listing(self) -> bool:
        return "listing" in self.operation or bool(self.row.items)

    def _help(self) -> str:
        summary, about = self.operation["summary"], self.operation.get("description", "")
        needs = {"admin": "Needs the admin token.", "telemetry": "Needs the telemetry token."}
        last = needs.get(self.operation["credential"], "")
        return "\n\n".join(
            part for part in (f"{summary}.", self.row.more, about.replace("`", ""), last) if part
        )

    def _run(self, target: ServerChoice, view: View, **given: Any) -> None:
        from sandyard.entrypoints.cli.calls.fields import values_of
        from sandyard.entrypoints.cli.calls.names import with_ids

        limit, key = given.pop("limit", None), given.pop("key", None)
        given_output = given.pop("to_file", "-")
        true = [each for name, each in self.row.flags.items() if given.pop(name)]
        with connected(target, patience_sec=_PATIENCE_SEC) as client:
            values = with_ids(client, self.row.operation, values_of(self.operation, given))
            values |= self.row.fixed
            if self.row.is_raw:
                self._write(client, values, given_output)
            elif self.is_listing:
                view.show(lambda: self._found(client, values, limit, true), self._columns)
            else:
                self._show(view, values, self._called(client, values, key))

    def _found(
        self,
        client: "Client",
        values: Mapping[str, Any],
        limit: int | None,
        true: Sequence[str],
    ) -> list[dict[str, Any]]:
        from sandyard_client.operations import listed

        if self.row.items:
            found: list[dict[str, Any]] = self._called(client, values, None)[self.row.items]
            return found
        page = {"limit": 100} if self._has_pages else {}
        flow = listed(client.calls, self.row.operation, {**page, **values}, limit)
        return [each for each in client.iterate(flow) if all(each[name] for name in true)]

    @property
    def _columns(self) -> Sequence[Column]:
        return self.group.columns_for(self.row, self.operation.get("answer_fields", ()))

    def _write(self, client: "Client", values: Mapping[str, Any], output: str) -> None:
        from sandyard_client.calls import streamed
        from sandyard_client.operations import request_of

        from sandyard.entrypoints.cli.outputs import open_output

        with open_output(output) as write:
            for piece in client.iterate(
                streamed(client.calls, request_of(self.row.operation, values))
            ):
                write(piece)

    @property
    def _has_pages(self) -> bool:
        return any(each["name"] == "limit" for each in self.operation["fields"])

    def _called(self, client: "Client", values: Mapping[str, Any], key: str | None) -> Any:
        from sandyard_client.operations import perform

        return client.run(perform(client.calls, self.row.operation, values, key))

    def _show(self, view: View, values: Mapping[str, Any], answer: Any) -> None:
        done = _DONE.get(self.row.name)
        if done is not None or answer is None:
            named = (each for each in self.operation["fields"] if each["in"] != "body")
            *_, last = (each for each in named if each["in"] == "path" or each.get("required"))
            click.echo(f"{done or 'done'} {values[last['name']]}")
        elif self.row.shown_once and view.output != "json":
            about = [f"{name} {answer[name]}" for name in self.operation["answer_fields"]
                     if name.endswith("_id") or name == "name"]  # fmt: skip
            click.echo(f"{', '.join(about)}, shown only once:", err=True)
            click.echo(answer[self.row.shown_once])
        else:
            view.show_one(answer, self._columns)
