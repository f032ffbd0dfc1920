"""`sandyard gameday`."""

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

import click

from sandyard.tools.gameday.model import SCENARIOS, Engine, find_scenario

_WIDTH = max(len(each.name) for each in SCENARIOS)
_LIST = "\n".join(f"  {each.name:{_WIDTH}}  {each.summary}" for each in SCENARIOS)
_EPILOG = f"""\b
Scenarios:
{_LIST}

\b
Examples:
  sandyard gameday task-killed
  sandyard gameday provider-outage --seconds 60
  DATABASE_URL=postgresql://… sandyard gameday engine-away --engine postgresql
  DDB_ENDPOINT_URL=http://127.0.0.1:8000 sandyard gameday throttling --engine dynamodb
"""
_URLS = {Engine.POSTGRESQL: "DATABASE_URL", Engine.DYNAMODB: "DDB_ENDPOINT_URL"}


@click.command("gameday", epilog=_EPILOG)
@click.argument("scenario", type=click.Choice([each.name for each in SCENARIOS]))
@click.option(
    "--engine",
    default="sqlite",
    type=click.Choice([each.value for each in Engine]),
    help="postgresql needs DATABASE_URL, dynamodb DDB_ENDPOINT_URL.",
)
@click.option("--seconds", default=20, type=click.IntRange(1, 3600))
@click.option("--rate", default=20, type=click.IntRange(1, 1000), help="New tracks per second.")
@click.option(
    "--rules",
    default="deploy/prometheus/rules.yml",
    type=click.Path(path_type=Path),
    help="Alert rules for Prometheus.",
)
def command(scenario: str, engine: str, seconds: int, rate: int, rules: Path) -> None:
    """Inject a fault under load on this machine, and check the guarantees and the alerts.

    Starts a simulated provider, servers, and Prometheus if it is installed. Prints one line per
    second. Exit code 1 if a guarantee was broken or an expected alert did not fire.
    """
    from sandyard.entrypoints.cli.progress import while_working
    from sandyard.tools.gameday.model import GameDayError, Load
    from sandyard.tools.gameday.report import lines
    from sandyard.tools.gameday.runner import hold
    from sandyard.tools.gameday.stage import Place

    chosen, kind = find_scenario(scenario), Engine(engine)
    if chosen is None:
        raise click.UsageError(f"There is no scenario {scenario}.")
    folder = Path(tempfile.mkdtemp(prefix="sandyard-gameday-"))
    place = Place(kind, os.environ.get(_URLS.get(kind, "")), folder, rules.resolve())
    try:
        with while_working(f"Game day {scenario}"):
            outcome = asyncio.run(hold(chosen, place, Load(seconds, rate)))
    except GameDayError as error:
        raise click.ClickException(f"{error}{_logs_in(folder)}") from error
    for line in lines(outcome):
        click.echo(line)
    if not outcome.has_passed:
        click.echo(_logs_in(folder).strip(), err=True)
        sys.exit(1)
    shutil.rmtree(folder)


def _logs_in(folder: Path) -> str:
    """The folder with the logs; it is removed if it is empty."""
    if any(folder.iterdir()):
        return f" Logs are in {folder}."
    folder.rmdir()
    return ""
