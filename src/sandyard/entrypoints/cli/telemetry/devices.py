"""`sandyard devices`."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.options import data_dir_option, quiet_settings
from sandyard.entrypoints.cli.progress import counting

if TYPE_CHECKING:
    from sandyard.settings import Settings
    from sandyard.tools.fleet.board import Difference
    from sandyard.tools.fleet.simulation import FleetPlan, Summary

_EPILOG = """\b
Examples:
  sandyard devices simulate
  sandyard devices simulate --count 200 --duplicates 0.2 --reorder 0.2 --lost-answers 0.2
  sandyard devices simulate --count 1000 --rate 500 --url https://telemetry.example.com
  TELEMETRY_ADMIN_TOKEN=… sandyard devices simulate --seed 7
"""

_SHOWN = 10
_SHARE = click.FloatRange(0, 1)
command = click.Group("devices", help="Simulate devices that send readings.", epilog=_EPILOG)


@command.command("simulate", epilog=_EPILOG)
@click.option("--url", default="http://127.0.0.1:8080", help="URL of the server.")
@click.option("--count", default=20, type=click.IntRange(1, 100_000))
@click.option(
    "--readings", default=100, type=click.IntRange(1, 1_000_000), help="Readings per device."
)
@click.option(
    "--rate",
    default=0.0,
    type=click.FloatRange(0),
    help="New readings per second of all devices; 0: as fast as possible.",
)
@click.option(
    "--duplicates",
    default=0.0,
    type=_SHARE,
    help="Share of acknowledged readings that are sent again.",
)
@click.option("--reorder", default=0.0, type=_SHARE, help="Share of readings that are sent late.")
@click.option(
    "--lost-answers",
    default=0.0,
    type=click.FloatRange(0, 0.9),
    help="Share of requests whose response the device never receives.",
)
@click.option(
    "--batch",
    default=100,
    type=click.IntRange(1, 100),
    help="Maximum number of readings per request.",
)
@click.option("--seed", type=int, help="Seed of an earlier run, to generate the same readings.")
@click.option(
    "--stall-timeout",
    "stall_timeout_sec",
    default=60.0,
    type=click.FloatRange(0),
    help="Give up after this many seconds without progress.",
)
@data_dir_option("Of the server; its token is read there if TELEMETRY_ADMIN_TOKEN is not set.")
def simulate(
    url: str,
    duplicates: float,
    reorder: float,
    batch: int,
    seed: int | None,
    data_dir: Path,
    **plan: Any,
) -> None:
    """Simulate a fleet of devices that send readings to a server.

    The options make them lose responses, send readings twice, late and out of order. They
    continue when an unavailable server comes back. At the end everything is read back: exit code
    1 unless the server has stored exactly what was measured.
    """
    import secrets

    from sandyard.tools.fleet.board import BoardBehavior
    from sandyard.tools.fleet.simulation import FleetPlan

    settings = quiet_settings()
    _require_url(url)
    seed = secrets.randbelow(2**32) if seed is None else seed
    behavior = BoardBehavior(batch=batch, duplicates=duplicates, reorder=reorder)
    fleet = FleetPlan(seed=seed, behavior=behavior, **plan)
    token = _token(settings, data_dir)
    summary, differences = asyncio.run(_simulate(fleet, url=url, admin_token=token))
    click.echo(
        f"{summary.devices} devices, {summary.readings} readings, {summary.requests} requests, "
        f"{summary.duplicates} duplicates sent, {summary.answers_lost} answers lost, "
        f"{summary.retries} retries\n"
        f"{summary.seconds:.1f} seconds, {summary.readings_per_sec:.0f} readings/s, "
        f"seed {seed}"
    )
    if not differences:
        click.echo("The server has stored exactly what was measured.")
        return
    click.echo(f"{len(differences)} difference{'s' if len(differences) != 1 else ''}:")
    for difference in differences[:_SHOWN]:
        click.echo(f"  {difference}")
    sys.exit(1)


async def _simulate(
    plan: "FleetPlan", *, url: str, admin_token: str
) -> "tuple[Summary, list[Difference]]":
    from sandyard.tools.fleet.simulation import open_fleet

    async with open_fleet(plan, url=url, admin_token=admin_token) as fleet:
        with counting("send", plan.count * plan.readings) as progress:
            summary = await fleet.send(progress)
        with counting("check", plan.count) as progress:
            return summary, await fleet.check(progress)


def _require_url(url: str) -> None:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from error
    if not is_good:
        raise click.BadParameter("must be a URL such as http://host:port", param_hint="--url")


def _token(settings: "Settings", data_dir: Path) -> str:
    from sandyard.entrypoints.server.data_dir import secret_file
    from sandyard.settings import SettingsError, tokens

    stored = secret_file(data_dir, "telemetry_admin_token")
    given = tokens(settings.telemetry.telemetry_admin_token)
    if not given and not stored.is_file():
        raise SettingsError(
            f"TELEMETRY_ADMIN_TOKEN: must be set, because {data_dir} has none. "
            "Set it, or pass the server's --data-dir."
        )
    token = given[0] if given else stored.read_text().strip()
    if not token.isascii():
        raise SettingsError("TELEMETRY_ADMIN_TOKEN: must be ASCII")
    return token
