"""`sandyard device`."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.calls.row import Rows
from sandyard.entrypoints.cli.connecting import ServerChoice, connected
from sandyard.entrypoints.cli.exit_codes import CallFailedError, ExitCode
from sandyard.entrypoints.cli.outputs import open_output
from sandyard.entrypoints.cli.progress import transferring
from sandyard.entrypoints.cli.showing import View, columns_of, local_time
from sandyard.entrypoints.cli.telemetry.rows import DEVICE_COLUMNS, device, keys

if TYPE_CHECKING:
    from sandyard_client import Client, Delivery, Device

_EPILOG = """\b
Examples:
  sandyard device register AA:BB:CC:DD:EE:FF --firmware 1.0.16
  sandyard device send AA:BB:CC:DD:EE:FF --firmware 1.0.16 --sensor temp_c=21.5
  sandyard device send AA:BB:CC:DD:EE:FF --firmware 1.0.16 --file readings.jsonl
  sandyard device tail AA:BB:CC:DD:EE:FF -o json
  sandyard device export AA:BB:CC:DD:EE:FF readings.parquet
"""
_HARDWARE_ID = click.argument("hardware_id")
_FIRMWARE = click.option("--firmware", required=True, help="Version of the firmware.")
_BUFFER = click.option(
    "--buffer",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Buffer file for readings; default: below ~/.local/state/sandyard.",
)
_FORMATS = ("csv", "parquet")
_REGISTERED = columns_of("device=hardware_id confirmation=confirmation_id registered_at")
command = Rows(
    "device",
    device,
    columns=DEVICE_COLUMNS,
    help="Register a device, send its readings, show them.",
    epilog=_EPILOG,
)
command.add_command(keys)


@command.server_command("register")
@_HARDWARE_ID
@_FIRMWARE
@click.option("--name", "friendly_name", help="Name of the device, if it has none yet.")
@_BUFFER
def register(target: ServerChoice, view: View, **about: Any) -> None:
    """Register a device; may be repeated. Needs the device key."""
    with connected(target) as client, _device(client, **about) as device:
        view.show_one(asdict(device.register()), _REGISTERED)


@command.server_command("send")
@_HARDWARE_ID
@_FIRMWARE
@click.option(
    "--sensor",
    "sensors",
    multiple=True,
    help="NAME=NUMBER of a reading taken now; may be repeated.",
)
@click.option(
    "--file",
    "lines",
    type=click.File(),
    help="Readings as JSON lines, each with `sensors` and `timestamp_ms`; - for stdin.",
)
@_BUFFER
def send(
    target: ServerChoice, view: View, sensors: tuple[str, ...], lines: Any, **about: Any
) -> None:
    """Send readings, including those in the buffer. Needs the device key.

    Each is stored once, however often it is sent. Exit code 7 if the server is unavailable: the
    readings stay in the buffer for the next `send`. Exit code 1 if some were rejected.
    """
    from sandyard_client import ApiError

    readings = [_reading(sensors)] if sensors else []
    if lines is not None:
        readings += _read(lines)
    with connected(target) as client, _device(client, **about) as device:
        try:
            delivery = device.send(readings)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        except ApiError as error:
            error.add_note(f"{device.waiting} readings wait in the buffer.")
            raise
    _show(view, delivery)
    if delivery.trouble is not None:
        raise CallFailedError(str(delivery.trouble), ExitCode.AWAY)
    if delivery.rejected:
        sys.exit(ExitCode.FAILED)


@command.server_command("tail")
@_HARDWARE_ID
@click.option("--since", type=click.FloatRange(0), default=0.0, help="Start this many minutes ago.")
@click.option("--interval", type=click.FloatRange(0.2), default=2.0)
def tail(target: ServerChoice, view: View, hardware_id: str, since: float, interval: float) -> None:
    """Show readings as they arrive, until interrupted. Needs the telemetry token."""
    import time

    from sandyard_client.log_flows import tail_readings

    since_ms = int((time.time() - since * 60) * 1000)
    with connected(target, patience_sec=300) as client:
        flow = tail_readings(client.calls, hardware_id, since_ms=since_ms, every_sec=interval)
        view.show_each(client.iterate(flow), _line)


@command.server_command("export")
@_HARDWARE_ID
@click.argument("output", default="-")
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), help="Default: by the file's name, else csv."
)
@click.option("--from", "from_ms", type=int, help="Epoch milliseconds, inclusive.")
@click.option("--to", "to_ms", type=int, help="Epoch milliseconds, inclusive.")
def export(
    target: ServerChoice,
    hardware_id: str,
    output: str,
    form: str | None,
    from_ms: int | None,
    to_ms: int | None,
) -> None:
    """Write all readings of a device, oldest first, to a file, `s3://BUCKET/KEY` or `-`."""
    from sandyard_client.calls import streamed, without_none
    from sandyard_client.operations import request_of

    values = {"format": _format_of(output, form), "from": from_ms, "to": to_ms}
    request = request_of("export_readings", {"hardware_id": hardware_id, **without_none(values)})
    with (
        connected(target) as client,
        open_output(output) as write,
        transferring("export") as progress,
    ):
        done = 0
        for piece in client.iterate(streamed(client.calls, request)):
            write(piece)
            done += len(piece)
            progress(done, None)


def _format_of(output: str, form: str | None) -> str:
    suffix = output.rpartition(".")[2].lower()
    named = suffix if suffix in _FORMATS else None
    if form and named and form != named:
        raise click.UsageError(f"{output} is not the name of a {form} file. Rename it.")
    return form or named or "csv"


def _show(view: View, delivery: "Delivery") -> None:
    for each in delivery.rejected:
        click.echo(f"rejected {each.batch_id}: {each.code}: {each.message}", err=True)
    counts = {
        "stored": delivery.stored,
        "waiting": delivery.waiting,
        "rejected": len(delivery.rejected),
    }
    if view.output == "json":
        click.echo(json.dumps(counts))
    else:
        click.echo(", ".join(f"{count} {name}" for name, count in counts.items()))


def _device(
    client: "Client",
    *,
    hardware_id: str,
    firmware: str,
    buffer: Path | None,
    friendly_name: str | None = None,
) -> "Device":
    from sandyard_client import Device

    path = buffer or _state_folder() / f"readings-{hardware_id.replace(':', '')}.db"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Device(
        hardware_id,
        firmware_version=firmware,
        buffer=path,
        client=client,
        friendly_name=friendly_name,
    )


def _state_folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "sandyard"


def _reading(sensors: tuple[str, ...]) -> dict[str, Any]:
    try:
        pairs = (sensor.split("=", 1) for sensor in sensors)
        return {"sensors": {name: float(value) for name, value in pairs}}
    except ValueError as error:
        raise click.BadParameter("must be NAME=NUMBER", param_hint="--sensor") from error


def _read(lines: Any) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            reading = json.loads(line)
        except ValueError as error:
            raise click.UsageError(f"Line {number} is not JSON: {error}") from error
        if not isinstance(reading, dict) or "timestamp_ms" not in reading:
            raise click.UsageError(f"Line {number} must be an object with timestamp_ms.")
        found.append(reading)
    return found


def _line(reading: dict[str, Any]) -> str:
    values = " ".join(f"{name}={value:g}" for name, value in sorted(reading["sensors"].items()))
    return f"{local_time(reading['timestamp_ms'] / 1000)} {values}"
