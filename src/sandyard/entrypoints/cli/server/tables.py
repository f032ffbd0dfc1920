"""`sandyard tables`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.progress import while_working

if TYPE_CHECKING:
    from sandyard.settings import Settings
    from sandyard.wiring.spec import PartSpec, Tables

_EPILOG = """\b
Examples:
  sandyard tables create
  sandyard tables create --billing-mode provisioned
  DDB_ENDPOINT_URL=http://127.0.0.1:8000 sandyard tables check
"""


@click.group("tables", epilog=_EPILOG)
def command() -> None:
    """Create and check the DynamoDB tables of the parts that use it.

    If neither POOL_STORE nor TELEMETRY_STORE is dynamodb, these are the Broker's.
    """


@command.command("create", epilog=_EPILOG)
@click.option(
    "--billing-mode",
    type=click.Choice(["on-demand", "provisioned"]),
    default="on-demand",
    show_default=True,
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


@command.command("check", epilog=_EPILOG)
def check() -> None:
    """Check keys, indexes and TTLs of the tables; exit code 1 if something is wrong."""

    async def work(settings: "Settings") -> AsyncIterator[str]:
        async with _tables(settings) as opened:
            for tables in opened:
                await tables.check()
                for definition in tables.definitions:
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
    from sandyard.settings import load_settings

    async def lines() -> list[str]:
        return [line async for line in work(load_settings())]

    with while_working(what):
        answer = asyncio.run(lines())
    click.echo("\n".join(answer))
