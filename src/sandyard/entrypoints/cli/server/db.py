"""`sandyard db`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.options import data_dir_option
from sandyard.entrypoints.cli.progress import while_working

if TYPE_CHECKING:
    from sandyard.kit.sql.migrations import Migrations
    from sandyard.settings import Settings

_EPILOG = """\b
Examples:
  DATABASE_URL=postgresql://… sandyard db upgrade
  DATABASE_URL=postgresql://… sandyard db upgrade --dry-run
  sandyard db current
"""

_data_dir = data_dir_option("Directory of the embedded databases, if DATABASE_URL is not set.")


@click.group("db", epilog=_EPILOG)
def command() -> None:
    """Migrate the SQL schemas."""


@command.command("upgrade", epilog=_EPILOG)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@_data_dir
def upgrade(dry_run: bool, data_dir: Path) -> None:
    """Upgrade every part's schema to the newest version, each in one transaction."""
    from sandyard.settings import load_settings

    if dry_run:
        asyncio.run(_plan(load_settings(), data_dir.resolve()))
    else:
        _each_part("upgrade", data_dir)


@command.command("downgrade", epilog=_EPILOG)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_data_dir
def downgrade(yes: bool, data_dir: Path) -> None:
    """Drop every part's tables with all data."""
    if not yes:
        click.confirm("This drops all tables with their data. Continue?", abort=True, err=True)
    _each_part("downgrade", data_dir)


@command.command("current", epilog=_EPILOG)
@_data_dir
def current(data_dir: Path) -> None:
    """Print each part's current and newest version."""
    _each_part("current", data_dir)


def _each_part(step: str, data_dir: Path) -> None:
    from sandyard.bootstrap.registry import embedded_parts
    from sandyard.entrypoints.server.data_dir import locked_if
    from sandyard.settings import load_settings

    settings = load_settings()
    alone = bool(embedded_parts(settings)) and step != "current"
    with locked_if(alone, data_dir), while_working(step):
        asyncio.run(_move(step, settings, data_dir.resolve()))


async def _move(step: str, settings: "Settings", data_dir: Path) -> None:
    from sandyard.bootstrap.registry import PARTS
    from sandyard.wiring.engines import opened_database

    for migrations in [part.migrations() for part in PARTS]:
        async with opened_database(settings, data_dir, migrations.part) as database:
            match step:
                case "upgrade":
                    await migrations.upgrade(database)
                case "downgrade":
                    await migrations.downgrade(database)
            version = await migrations.current(database)
        click.echo(f"{migrations.part}: version {version or 'none'}, newest {migrations.head}")


async def _plan(settings: "Settings", data_dir: Path) -> None:
    from sandyard.bootstrap.registry import PARTS
    from sandyard.wiring.engines import opened_database

    for spec in PARTS:
        migrations = spec.migrations()
        is_shared = settings.server.database_url is not None
        is_new = not is_shared and not (data_dir / spec.database_file).exists()
        current = None
        if not is_new:  # opening it would create it
            async with opened_database(settings, data_dir, spec.name) as database:
                current = await migrations.current(database)
        for line in plan_lines(migrations, current, is_shared=is_shared):
            click.echo(line)


def plan_lines(
    migrations: "Migrations", current: str | None, *, is_shared: bool = True
) -> Iterator[str]:
    """The steps of an upgrade of the part, and which servers may run meanwhile: none if the
    database belongs to a single process."""
    steps = migrations.steps(current)
    if not steps:
        yield f"{migrations.part}: version {current}, nothing to do"
        return
    yield f"{migrations.part}: version {current or 'none'} to {steps[-1].version}"
    for step in steps:
        yield f"  {step.version}  {step.title}"
    if current is None:
        return
    if is_shared and max(step.oldest_code for step in steps) <= current:
        yield "  Servers of the previous release can keep running."
    else:
        yield "  Stop the servers of the previous release first."
