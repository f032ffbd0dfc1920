"""`sandyard db` and `sandyard tables`: the schemas of the SQL engines, the tables of DynamoDB."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.options import data_dir_option
from sandyard.entrypoints.cli.progress import while_working

if TYPE_CHECKING:
    from sandyard.kit.sql.migrations import Migrations
    from sandyard.settings import Settings
    from sandyard.wiring.spec import PartSpec, Tables

_DB = """\b
Examples:
  DATABASE_URL=postgresql://… sandyard db upgrade
  DATABASE_URL=postgresql://… sandyard db upgrade --dry-run
  sandyard db current
"""

_data_dir = data_dir_option("Directory of the embedded databases, if DATABASE_URL is not set.")
db = click.Group("db", help="Migrate the SQL schemas.", epilog=_DB)


@db.command("upgrade", epilog=_DB)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@_data_dir
def upgrade(dry_run: bool, data_dir: Path) -> None:
    """Upgrade every part's schema to the newest version, each in one transaction."""
    from sandyard.kit.store_states import in_any_state
    from sandyard.settings import load_settings

    if dry_run:
        with in_any_state():
            asyncio.run(_plan(load_settings(), data_dir.resolve()))
    else:
        _each_part("upgrade", data_dir)


@db.command("downgrade", epilog=_DB)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_data_dir
def downgrade(yes: bool, data_dir: Path) -> None:
    """Drop every part's tables with all data."""
    if not yes:
        click.confirm("This drops all tables with their data. Continue?", abort=True, err=True)
    _each_part("downgrade", data_dir)


@db.command("current", epilog=_DB)
@_data_dir
def current(data_dir: Path) -> None:
    """Print each part's current and newest version."""
    _each_part("current", data_dir)


def _each_part(step: str, data_dir: Path) -> None:
    from sandyard.bootstrap.registry import embedded_parts
    from sandyard.entrypoints.server.data_dir import locked_if
    from sandyard.kit.store_states import in_any_state
    from sandyard.settings import load_settings

    settings = load_settings()
    alone = bool(embedded_parts(settings)) and step != "current"
    with locked_if(alone, data_dir), while_working(step), in_any_state():
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
                    await migrations.drop(database)
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
    if current is None:
        return
    for step in steps:
        yield f"  {step.version}  {step.title}"
    if is_shared and max(step.oldest_code for step in steps) <= current:
        yield "  Servers of the previous release can keep running."
    else:
        yield "  Stop the servers of the previous release first."


_TABLES = """\b
Examples:
  sandyard tables create
  sandyard tables create --billing-mode provisioned
  DDB_ENDPOINT_URL=http://127.0.0.1:8000 sandyard tables check
"""


@click.group("tables", epilog=_TABLES)
def tables() -> None:
    """Create and check the DynamoDB tables of the parts that use it.

    If neither POOL_STORE nor TELEMETRY_STORE is dynamodb, these are the Broker's.
    """


@tables.command("create", epilog=_TABLES)
@click.option(
    "--billing-mode",
    type=click.Choice(["on-demand", "provisioned"]),
    default="on-demand",
    help="Billing mode of new tables.",
)
def create(billing_mode: str) -> None:
    """Create the tables with their indexes and TTLs; add missing indexes to existing tables.

    With provisioned capacity, the required auto-scaling targets are listed: resource, dimension,
    minimum and maximum capacity, target utilization. Register them with Application Auto Scaling.
    """

    async def work(settings: "Settings") -> AsyncIterator[str]:
        from sandyard.kit.dynamo.tables import on_demand, provisioned, scaling_targets

        is_provisioned = billing_mode == "provisioned"
        async with _tables(settings) as opened:
            made: dict[str, str] = {}
            for tables in opened:
                made |= await tables.create(provisioned if is_provisioned else on_demand)
            for tables in opened:
                await tables.check()
                for definition in tables.definitions:
                    name = definition["TableName"]
                    yield f"{name}: {made[name]}"
                    for target in scaling_targets(definition) if is_provisioned else ():
                        yield f"  {target}"

    _run("create", work)


@tables.command("check", epilog=_TABLES)
def check() -> None:
    """Check keys, indexes and TTLs of the tables; exit code 1 if something is wrong."""

    async def work(settings: "Settings") -> AsyncIterator[str]:
        async with _tables(settings) as opened:
            for each in opened:
                await each.check()
                for definition in each.definitions:
                    yield f"{definition['TableName']}: fit for use"

    _run("check", work)


@asynccontextmanager
async def _tables(settings: "Settings") -> "AsyncIterator[list[Tables]]":
    """The tables of the parts that use DynamoDB."""
    async with AsyncExitStack() as stack:
        opened = [part.tables(settings) for part in _on_dynamodb(settings) if part.tables]
        for tables in opened:
            stack.push_async_callback(tables.close)
        yield opened


def _on_dynamodb(settings: "Settings") -> "list[PartSpec]":
    """The parts configured for DynamoDB; if none is, the first that supports it."""
    from sandyard.bootstrap.registry import PARTS

    able = [part for part in PARTS if part.tables is not None]
    return [part for part in able if part.is_on_dynamodb(settings)] or able[:1]


def _run(what: str, work: Callable[["Settings"], AsyncIterator[str]]) -> None:
    from sandyard.kit.store_states import in_any_state
    from sandyard.settings import load_settings

    async def lines() -> list[str]:
        return [line async for line in work(load_settings())]

    with while_working(what), in_any_state():
        answer = asyncio.run(lines())
    click.echo("\n".join(answer))
