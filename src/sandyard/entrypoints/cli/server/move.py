"""`sandyard move`."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.options import data_dir_option
from sandyard.entrypoints.cli.progress import counting

if TYPE_CHECKING:
    from sandyard.settings import Settings
    from sandyard.wiring.spec import PartSpec
    from sandyard.wiring.stores import Store

_EPILOG = """\b
Examples:
  DATABASE_URL=postgresql://… sandyard move --from sqlite --to postgresql
  DATABASE_URL=postgresql://… sandyard move --from postgresql --to dynamodb --part broker
  sandyard move --from dynamodb --to sqlite --replace --data-dir /var/lib/sandyard
  sandyard move --from sqlite --to postgresql --back
"""
_ENGINE = "ENGINE"
_PARTS = ("broker", "telemetry", "platform", "previews")


@click.command("move", epilog=_EPILOG)
@click.option("--from", "source", required=True, metavar=_ENGINE, help="Where the data is.")
@click.option("--to", "target", required=True, metavar=_ENGINE, help="Where it goes.")
@click.option(
    "--part",
    "names",
    multiple=True,
    type=click.Choice(_PARTS),
    help="Move only this part. Repeatable.",
)
@click.option("--back", is_flag=True, help="Take back a move that has not ended.")
@click.option(
    "--replace",
    is_flag=True,
    help="Delete the data that an earlier move has left on the target.",
)
@data_dir_option("The data dir, for SQLite and for the generated secrets.")
def command(
    source: str, target: str, names: tuple[str, ...], back: bool, replace: bool, data_dir: Path
) -> None:
    """Move the data of all parts, or of some, to another engine.

    ENGINE is sqlite (in the data dir), postgresql (DATABASE_URL), dynamodb (the DDB_ settings), or
    a URL of PostgreSQL. Stop the servers on SQLite first; those on a shared engine may run, and
    respond with 503 from now on. A move that broke off goes on when the command is run again. At
    the end both sides are compared and verified; then start the servers with the settings of the
    target.
    """
    from sandyard.entrypoints.move.belongings import take_along
    from sandyard.entrypoints.move.service import MoveOptions, move, move_back
    from sandyard.entrypoints.server.data_dir import locked_if
    from sandyard.kit.observability.log import configure_logging
    from sandyard.kit.store_states import in_any_state
    from sandyard.settings import load_settings
    from sandyard.wiring.stores import Store

    configure_logging("ERROR", "text")
    settings, data_dir = load_settings(), data_dir.resolve()
    here, there = _side(settings, source), _side(settings, target)
    if here == there:
        raise click.UsageError("--from and --to are the same engine.")
    pairs = [
        (
            Store(here[1], data_dir, part.name, here[0]),
            Store(there[1], data_dir, part.name, there[0]),
        )
        for part in _parts(names, here[0], there[0])
        if here[0] != "sqlite" or (data_dir / part.database_file).exists()
    ]
    options = MoveOptions(counting, click.echo, replaces=replace)
    with locked_if("sqlite" in (here[0], there[0]), data_dir), in_any_state():
        if back:
            asyncio.run(move_back(pairs, options))
            return
        asyncio.run(move(pairs, _broker(settings, data_dir), options))
        for line in take_along(pairs, data_dir):
            click.echo(line)


def _side(settings: "Settings", engine: str) -> "tuple[str, Settings]":
    from sandyard.settings import SettingsError, at_database
    from sandyard.wiring.stores import ENGINES, on_engine

    if engine.startswith(("postgresql://", "postgres://")):
        settings, engine = at_database(settings, engine), "postgresql"
    if engine not in ENGINES:
        raise click.UsageError(f"{engine}: must be {', '.join(ENGINES)} or a URL of PostgreSQL.")
    if engine == "postgresql" and settings.server.database_url is None:
        raise SettingsError("DATABASE_URL: must be set for postgresql")
    return engine, on_engine(settings, engine)


def _parts(names: tuple[str, ...], *engines: str) -> "list[PartSpec]":
    from sandyard.bootstrap.registry import PARTS

    chosen = [part for part in PARTS if not names or part.name in names]
    if "dynamodb" not in engines:
        return chosen
    unable = [part.name for part in chosen if part.contents is None]
    if names and unable:
        raise click.UsageError(f"{', '.join(unable)}: has no store on DynamoDB.")
    if unable:
        click.echo(f"{', '.join(unable)}: not moved, as DynamoDB is not supported")
    return [part for part in chosen if part.contents is not None]


def _broker(settings: "Settings", data_dir: Path) -> "Store":
    from sandyard.bootstrap.registry import get_spec
    from sandyard.wiring.stores import Store

    return Store(settings, data_dir, "broker", get_spec("broker").engine_of(settings))
