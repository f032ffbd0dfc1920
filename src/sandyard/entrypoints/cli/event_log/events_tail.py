"""`sandyard events tail`: shows events as they arrive."""

import queue
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.connecting import ServerChoice, connected, connection_options
from sandyard.entrypoints.cli.event_log.event_lines import event_line
from sandyard.entrypoints.cli.showing import View, output_options

if TYPE_CHECKING:
    from sandyard_client import Client

_EPILOG = """\b
Examples:
  sandyard events tail
  sandyard events tail --part broker --kind lease.created -o json
  sandyard events tail --since 60 --subject sbx-1m4p7s0v3y6b9e2hk
"""


@click.command("tail", epilog=_EPILOG)
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(["broker", "telemetry", "account", "platform"]),
    help="Only this part; may be repeated. Default: all that the profile has credentials for.",
)
@click.option("--kind", help="Only this kind, such as lease.created.")
@click.option("--subject", help="Only this subject.")
@click.option("--since", type=click.FloatRange(0), default=0.0, help="Start this many minutes ago.")
@click.option("--interval", type=click.FloatRange(0.2), default=2.0, show_default=True)
@output_options()
@connection_options
def tail(
    target: ServerChoice,
    view: View,
    parts: tuple[str, ...],
    kind: str | None,
    subject: str | None,
    since: float,
    interval: float,
) -> None:
    """Show events as they arrive, until interrupted. `-o json` writes JSON lines."""
    filters = {"kind": kind, "subject": subject}
    begin = datetime.now(UTC) - timedelta(minutes=since)
    with connected(target, patience_sec=300) as client:
        chosen = parts or _readable(client)
        view.show_each(_merged(client, chosen, begin, filters, interval), event_line)


def _readable(client: "Client") -> tuple[str, ...]:
    """The logs for which there are credentials; an account's own in preference to all accounts'."""
    from sandyard_client.log_flows import EVENT_LOGS

    known = {"broker": "admin_token", "telemetry": "telemetry_token", "account": "api_key"}
    found = [part for part, name in known.items() if getattr(client.connection, name)]
    assert set(found) <= EVENT_LOGS.keys()  # noqa: S101 - the names are the same
    if not found:
        raise click.UsageError("No credential for events. Store one with `sandyard login`.")
    return tuple(found)


def _merged(
    client: "Client",
    parts: tuple[str, ...],
    begin: datetime,
    filters: dict[str, str | None],
    interval: float,
) -> Iterator[dict[str, Any]]:
    """Each log in its own thread, as each waits independently."""
    from sandyard_client.log_flows import EVENT_LOGS, tail_events

    found: queue.SimpleQueue[dict[str, Any] | Exception] = queue.SimpleQueue()

    def follow(part: str) -> None:
        flow = tail_events(
            client.calls, EVENT_LOGS[part], since=begin, filters=filters, every_sec=interval
        )
        try:
            for event in client.iterate(flow):
                found.put(event)
        except Exception as error:
            found.put(error)

    for part in parts:
        threading.Thread(target=follow, args=(part,), daemon=True).start()
    while True:
        event = found.get()
        if isinstance(event, Exception):
            raise event
        yield event
