"""`sandyard pool`: the pool, live in a terminal; single sandboxes; its provider."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli import showing
from sandyard.entrypoints.cli.broker.rows import POOL_COLUMNS, pool
from sandyard.entrypoints.cli.calls.row import Rows
from sandyard.entrypoints.cli.connecting import ServerChoice, connected, operator_call
from sandyard.entrypoints.cli.options import data_dir_option, locked_part

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sandyard.settings import Settings

_EPILOG = """\b
Examples:
  sandyard pool watch
  sandyard pool watch --interval 10 -o json >> pool.jsonl
  CSP_BASE_URL=https://new.csp.example.com sandyard pool set-provider
  CSP_BASE_URL=https://new.csp.example.com POOL_STORE=dynamodb sandyard pool set-provider --yes
"""
command = Rows(
    "pool",
    pool,
    columns=POOL_COLUMNS,
    help="Show and change the Broker's pool.",
    epilog=_EPILOG,
)


@command.command("set-provider", epilog=_EPILOG)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@data_dir_option("Directory of the embedded databases, while no `serve` uses it.")
def set_provider(yes: bool, data_dir: Path) -> None:
    """Set the pool's provider to that of CSP_BASE_URL.

    Use it if the provider's address has changed: its sandboxes must be the same. A pool with
    simulated sandboxes can't be moved to a real provider.
    """
    with locked_part("broker", data_dir) as settings:
        click.echo(asyncio.run(_set_provider(settings, data_dir.resolve(), yes=yes)))


async def _set_provider(settings: "Settings", data_dir: Path, *, yes: bool) -> str:
    from sandyard.bootstrap.provider import open_pool_provider

    async with open_pool_provider(settings, data_dir) as own:
        before = await own.before_change() or "none"
        if not (yes or _confirm(before, own.configured)):
            raise click.ClickException("Nothing was changed.")
        before = await own.change() or "none"
    return f"provider: {own.configured} (before: {before})"


def _confirm(before: str, after: str) -> bool:
    text = f"The pool's provider is {before} and becomes {after}. Has that one all its sandboxes?"
    return click.confirm(text, default=False, err=True)


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


@command.server_command("watch")
@click.option("--interval", type=click.FloatRange(0.2), default=2.0)
def watch(target: ServerChoice, view: showing.View, interval: float) -> None:
    """Show the pool by state and its events, until interrupted. Needs the admin token.

    Without a terminal, or with `-o json`, it writes a line whenever a count changes.
    """
    stats, events = (
        operator_call("GET", "/v1/admin/stats"),
        operator_call("GET", "/v1/admin/events"),
    )
    is_live = sys.stdout.isatty() and view.output != "json"
    with connected(target, patience_sec=300) as client:

        def screen() -> "RenderableType":
            last = list(client.items(events, "events", limit=12))
            return _screen(client.call(stats), last)

        def counts() -> Mapping[str, int]:
            now = client.call(stats)
            return {state: now[state] for state in (*_STATES, "total")}

        if is_live:
            showing.show_live(screen, interval)
        as_json = view.output == "json"
        showing.show_lines(
            _line(each, as_json=as_json) for each in showing.changes(counts, interval)
        )


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
    return Group(table, "", *(Text(showing.event_line(event), no_wrap=True) for event in events))
