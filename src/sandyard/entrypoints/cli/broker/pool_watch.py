"""`sandyard pool watch`: the pool, live in a terminal."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.connecting import ServerChoice, connected, connection_options
from sandyard.entrypoints.cli.event_log.event_lines import event_line
from sandyard.entrypoints.cli.showing import View, changes, output_options, show_lines, show_live

if TYPE_CHECKING:
    from rich.console import RenderableType

_EPILOG = """\b
Examples:
  sandyard pool watch
  sandyard pool watch --interval 10 -o json >> pool.jsonl
"""
_STATES = {
    "available": "green",
    "reserved": "cyan",
    "allocated": "blue",
    "held": "magenta",
    "stale": "yellow",
    "pending_deletion": "bright_black",
    "deletion_failed": "red",
}
_BAR = 40


@click.command("watch", epilog=_EPILOG)
@click.option("--interval", type=click.FloatRange(0.2), default=2.0, show_default=True)
@output_options()
@connection_options
def watch(target: ServerChoice, view: View, interval: float) -> None:
    """Show the pool by state and its events, until interrupted. Needs the admin token.

    Without a terminal, or with `-o json`, it writes a line whenever a count changes.
    """
    from sandyard_client import Credential, Request

    stats = Request("GET", "/v1/admin/stats", Credential.ADMIN, is_repeatable=True)
    events = Request("GET", "/v1/admin/events", Credential.ADMIN, is_repeatable=True)
    is_live = sys.stdout.isatty() and view.output != "json"
    with connected(target, patience_sec=300) as client:

        def screen() -> "RenderableType":
            last = list(client.items(events, "events", limit=12))
            return _screen(client.call(stats), last)

        def counts() -> Mapping[str, int]:
            now = client.call(stats)
            return {state: now[state] for state in (*_STATES, "total")}

        if is_live:
            show_live(screen, interval)
        as_json = view.output == "json"
        show_lines(_line(each, as_json=as_json) for each in changes(counts, interval))


def _line(counts: Mapping[str, int], *, as_json: bool) -> str:
    at = datetime.now(UTC)
    if as_json:
        return json.dumps({"at": at.isoformat(timespec="seconds"), **counts})
    text = " ".join(f"{state}={count}" for state, count in counts.items())
    return f"{at.astimezone():%H:%M:%S} {text}"


def _screen(counts: Mapping[str, int], events: Sequence[Mapping[str, Any]]) -> "RenderableType":
    from rich.bar import Bar
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    largest = max([1, *(counts[state] for state in _STATES)])
    for state, color in _STATES.items():
        bar = Bar(largest, 0, counts[state], color=color, width=_BAR)
        table.add_row(state.replace("_", " "), str(counts[state]), bar)
    table.add_row("total", str(counts["total"]), f"{datetime.now(UTC).astimezone():%H:%M:%S}")
    return Group(table, "", *(Text(event_line(event), no_wrap=True) for event in events))
