"""`sandyard events`."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.calls.row import Rows
from sandyard.entrypoints.cli.connecting import ServerChoice, connected
from sandyard.entrypoints.cli.options import data_dir_option, quiet_settings
from sandyard.entrypoints.cli.outputs import open_output
from sandyard.entrypoints.cli.progress import counting
from sandyard.entrypoints.cli.showing import View, event_line

if TYPE_CHECKING:
    from sandyard_client import Client

    from sandyard.settings import Settings
    from sandyard.wiring.spec import PartSpec

_EPILOG = """\b
Examples:
  sandyard events tail --part broker --kind lease.created -o json
  sandyard events tail --since 60 --subject sbx-1m4p7s0v3y6b9e2hk
  sandyard events export --from 2026-11-01 --to 2026-12-01 > november.jsonl
  sandyard events export --from 2026-11-16T09:00:00+01:00 --part broker class.jsonl
  sandyard events export --from 2026-11-01 s3://audit/2026/11.jsonl
"""


class _Time(click.ParamType[datetime]):
    """A day, or an RFC 3339 time; UTC if it has no offset."""

    name = "time"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            at = datetime.fromisoformat(value.upper())
        except ValueError:
            self.fail("must be such as 2026-11-16 or 2026-11-16T09:00:00+01:00", param, ctx)
        return at if at.tzinfo else at.replace(tzinfo=UTC)


command = Rows("events", help="Read the event logs of all parts.", epilog=_EPILOG)


@command.command("export", epilog=_EPILOG)
@click.option("--from", "start", type=_Time(), required=True, help="RFC 3339 time, or a UTC day.")
@click.option(
    "--to", "end", type=_Time(), help="The same, exclusive. At most, and by default, a minute ago."
)
@click.option("--part", "names", multiple=True, help="Only this part; may be repeated.")
@click.argument("output", default="-")
@data_dir_option("Directory of the embedded databases; it may be in use.")
def export(
    start: datetime, end: datetime | None, names: tuple[str, ...], output: str, data_dir: Path
) -> None:
    """Write all events of a time range as JSON lines, part by part, oldest first.

    OUTPUT is a file, `s3://BUCKET/KEY`, or `-` for standard output. The
    last minute is left to the next export: a change may not have reached the log yet.
    """
    from sandyard.kit.changes.events import SETTLED_MS
    from sandyard.kit.clock import SystemClock

    settled_ms = int(SystemClock().now() * 1000) - SETTLED_MS
    from_ms = _milliseconds(start)
    to_ms = min(_milliseconds(end), settled_ms) if end else settled_ms
    if from_ms >= to_ms:
        raise click.UsageError("--from must be before --to")
    settings, data_dir = quiet_settings(), data_dir.resolve()
    parts = _parts(settings, data_dir, names)

    async def work() -> int:
        written = 0
        with open_output(output) as write, counting("events", None) as progress:
            async for lines in _lines(settings, data_dir, parts, from_ms, to_ms):
                write(b"".join(lines))
                written += len(lines)
                progress(written)
        return written

    written = asyncio.run(work())
    click.echo(f"{written} events", err=True)


async def _lines(
    settings: "Settings", data_dir: Path, parts: "list[PartSpec]", from_ms: int, to_ms: int
) -> AsyncIterator[list[bytes]]:
    from sandyard.kit.http.events import EventAnswer

    for part in parts:
        async with part.log(settings, data_dir) as log:
            async for events in log.between(from_ms=from_ms, to_ms=to_ms):
                yield [EventAnswer.of(each).model_dump_json().encode() + b"\n" for each in events]


def _parts(settings: "Settings", data_dir: Path, names: tuple[str, ...]) -> "list[PartSpec]":
    """The requested parts, or all that PARTS selects and that have data here."""
    from sandyard.bootstrap.registry import selected_parts

    selected = selected_parts(settings)
    if unknown := set(names) - {part.name for part in selected}:
        known = ", ".join(part.name for part in selected)
        raise click.UsageError(f"--part {sorted(unknown)[0]}: must be one of {known}")
    chosen = [part for part in selected if not names or part.name in names]
    there = [part for part in chosen if part.has_data(settings, data_dir)]
    if not there:
        raise click.ClickException(f"There are no events in {data_dir}. Choose another --data-dir.")
    return there


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


@command.server_command("tail")
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
@click.option("--interval", type=click.FloatRange(0.2), default=2.0)
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
