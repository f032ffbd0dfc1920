"""`sandyard tables`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sandyard.settings import Settings

_EPILOG = """\b
Examples:
  sandyard tables create
  DDB_ENDPOINT_URL=http://127.0.0.1:8000 sandyard tables check
  sandyard tables adopt
"""


@click.group("tables", epilog=_EPILOG)
def command() -> None:
    """Make and check the DynamoDB tables of the parts that are set to it.

    With neither POOL_STORE nor TELEMETRY_STORE set to dynamodb, the Broker's.
    """


@command.command("create", epilog=_EPILOG)
def create() -> None:
    """Make the tables with their indexes and TTLs, unless they are there."""

    async def work(settings: "Settings") -> AsyncIterator[str]:
        async for name, made in _each_part(settings, create=True):
            yield f"{name}: {'created' if made else 'was there'}"

    _run("create", work)


@command.command("check", epilog=_EPILOG)
def check() -> None:
    """Say whether the tables are laid out as they must be; exit code 1 if not."""

    async def work(settings: "Settings") -> AsyncIterator[str]:
        async for name, _ in _each_part(settings, create=False):
            yield f"{name}: fit for use"

    _run("check", work)


@command.command("adopt", epilog=_EPILOG)
def adopt() -> None:
    """Take over a table that another program filled by this layout: add what the Broker needs.

    It can be run twice, and while traffic flows.
    """

    async def work(settings: "Settings") -> AsyncIterator[str]:
        from sandyard.bootstrap.broker import open_pool_table
        from sandyard.broker.stores.dynamo_adoption import adopt

        pool = open_pool_table(settings)
        try:
            report = await adopt(pool)
        finally:
            await pool.table.engine.close()
        yield (
            f"{pool.names.table}: {report.allocations} allocations, "
            f"{report.leases_added} leases added, {report.already_there} were there"
        )
        for each in report.duplicates:
            yield (
                f"  {each}: its track and key have a newer sandbox; "
                "it keeps its owner until it expires"
            )

    _run("adopt", work)


async def _each_part(settings: "Settings", *, create: bool) -> AsyncIterator[tuple[str, bool]]:
    """Each table of the parts that are on DynamoDB, and whether it was made now."""
    from sandyard.bootstrap.broker import open_pool_table
    from sandyard.bootstrap.telemetry import open_telemetry_tables

    on_telemetry = settings.telemetry.telemetry_store == "dynamodb"
    if settings.broker.pool_store == "dynamodb" or not on_telemetry:
        pool = open_pool_table(settings)
        try:
            made = await pool.create() if create else False
            await pool.check()
            yield pool.names.table, made
        finally:
            await pool.table.engine.close()
    if on_telemetry:
        tables = open_telemetry_tables(settings)
        try:
            were_made = await tables.create() if create else dict.fromkeys(tables.names, False)
            await tables.check()
            for name, was_made in were_made.items():
                yield name, was_made
        finally:
            await tables.engine.close()


def _run(what: str, work: Callable[["Settings"], AsyncIterator[str]]) -> None:
    from sandyard.entrypoints.cli.progress import while_working
    from sandyard.settings import load_settings

    async def lines() -> list[str]:
        return [line async for line in work(load_settings())]

    with while_working(what):
        answer = asyncio.run(lines())
    click.echo("\n".join(answer))
