"""`sandyard pool`."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.broker.pool_sandboxes import history, quarantine
from sandyard.entrypoints.cli.broker.pool_watch import watch
from sandyard.entrypoints.cli.options import data_dir_option

if TYPE_CHECKING:
    from sandyard.settings import Settings

_EPILOG = """\b
Examples:
  sandyard pool watch
  sandyard pool quarantine lab-042 --reason "no network"
  sandyard pool history lab-042
  CSP_BASE_URL=https://new.csp.example.com sandyard pool set-provider
  CSP_BASE_URL=https://new.csp.example.com POOL_STORE=dynamodb sandyard pool set-provider --yes
"""


@click.group("pool", epilog=_EPILOG)
def command() -> None:
    """Show and change the Broker's pool."""


command.add_command(watch)
command.add_command(quarantine)
command.add_command(history)


@command.command("set-provider", epilog=_EPILOG)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@data_dir_option("Directory of the embedded databases, while no `serve` uses it.")
def set_provider(yes: bool, data_dir: Path) -> None:
    """Set the pool's provider to that of CSP_BASE_URL.

    Use it if the provider's address has changed: its sandboxes must be the same. A pool with
    simulated sandboxes can't be moved to a real provider.
    """
    from sandyard.bootstrap.registry import get_spec
    from sandyard.entrypoints.server.data_dir import locked_if
    from sandyard.settings import SettingsError, load_settings

    settings = load_settings()
    broker = get_spec("broker")
    if not broker.has_data(settings, data_dir):
        raise SettingsError(f"There is no pool in {data_dir}. Choose another --data-dir.")
    with locked_if(broker.is_embedded(settings), data_dir):
        click.echo(asyncio.run(_set_provider(settings, data_dir.resolve(), yes=yes)))


async def _set_provider(settings: "Settings", data_dir: Path, *, yes: bool) -> str:
    from sandyard.bootstrap.provider import open_pool_provider

    async with open_pool_provider(settings, data_dir) as own:
        before = await own.before_change() or "none"
        if not (yes or _confirm(before, own.configured)):
            raise click.ClickException("Nothing was changed.")
        before = await own.change() or "none"
    return f"provider: {own.configured} (before: {before})"


def _confirm(before: str, after: str) -> bool:
    text = f"The pool's provider is {before} and becomes {after}. Has that one all its sandboxes?"
    return click.confirm(text, default=False, err=True)
