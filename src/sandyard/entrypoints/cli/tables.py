"""`sandyard tables`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sandyard.broker.stores.dynamo_table import PoolTable

_EPILOG = """\b
Examples:
  sandyard tables create
  DDB_ENDPOINT_URL=http://127.0.0.1:8000 sandyard tables check
  sandyard tables adopt
"""


@click.group("tables", epilog=_EPILOG)
def command() -> None:
    """Make and check the DynamoDB tables (POOL_STORE=dynamodb)."""


@command.command("create", epilog=_EPILOG)
def create() -> None:
    """Make the table with its indexes and its TTL, unless it is there."""

    async def work(pool: "PoolTable") -> str:
        made = await pool.create()
        await pool.check()
        return f"{pool.names.table}: {'created' if made else 'was there'}"

    _on_table("create", work)


@command.command("check", epilog=_EPILOG)
def check() -> None:
    """Say whether the table is laid out as the Broker needs it; exit code 1 if not."""

    async def work(pool: "PoolTable") -> str:
        await pool.check()
        return f"{pool.names.table}: fit for use"

    _on_table("check", work)


@command.command("adopt", epilog=_EPILOG)
def adopt() -> None:
    """Take over a table that another program filled by this layout: add what the Broker needs.

    It can be run twice, and while traffic flows.
    """

    async def work(pool: "PoolTable") -> str:
        from sandyard.broker.stores.dynamo_adoption import adopt

        report = await adopt(pool)
        summary = (
            f"{pool.names.table}: {report.allocations} allocations, "
            f"{report.leases_added} leases added, {report.already_there} were there"
        )
        duplicates = [
            f"  {each}: its track and key have a newer sandbox; it keeps its owner until it expires"
            for each in report.duplicates
        ]
        return "\n".join([summary, *duplicates])

    _on_table("adopt", work)


def _on_table(what: str, work: Callable[["PoolTable"], Awaitable[str]]) -> None:
    from sandyard.bootstrap import open_pool_table
    from sandyard.entrypoints.cli.progress import while_working
    from sandyard.settings import load_settings

    async def run() -> str:
        pool = open_pool_table(load_settings())
        try:
            return await work(pool)
        finally:
            await pool.table.engine.close()

    with while_working(what):
        answer = asyncio.run(run())
    click.echo(answer)
