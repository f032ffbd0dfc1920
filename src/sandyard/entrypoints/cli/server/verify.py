"""`sandyard verify`."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.options import data_dir_option, quiet_settings
from sandyard.entrypoints.cli.progress import counting

if TYPE_CHECKING:
    from sandyard.settings import Settings
    from sandyard.wiring.spec import Verification

_EPILOG = """\b
Examples:
  sandyard verify
  sandyard verify --data-dir /var/lib/sandyard
  POOL_STORE=dynamodb sandyard verify
"""


@click.command("verify", epilog=_EPILOG)
@data_dir_option("Directory of the embedded databases; it may be in use.")
def command(data_dir: Path) -> None:
    """Check all data for inconsistencies, also while it is in use.

    For every part: the stored state is the result of its events, and nothing is gone without an
    event. For the Broker: no sandbox with two owners and no track and key with two sandboxes, now
    or ever, every allocation with its lease, no deleted sandbox back, tickets served in order. For
    the Platform: every start with one end, every end with a reason, every usage within its run, and
    every bill of its usage. For Previews: never two of a project at once. Exit code 1 if something
    is wrong.
    """
    found, unavailable = asyncio.run(_verify(quiet_settings(), data_dir.resolve()))
    for each in found:
        count = len(each.problems)
        click.echo(f"{each.summary}: {count or 'no'} problem{'s' if count != 1 else ''}")
        for problem in each.problems:
            click.echo(f"  {problem}")
    for line in unavailable:
        click.echo(f"sandyard: {line}", err=True)
    if unavailable or any(each.problems for each in found):
        sys.exit(1)


async def _verify(settings: "Settings", data_dir: Path) -> "tuple[list[Verification], list[str]]":
    """The results of each part that PARTS selects and that has data here; and why others could not
    be read."""
    from sandyard.bootstrap.registry import selected_parts
    from sandyard.kit.errors import UnavailableError, with_reason
    from sandyard.settings import SettingsError

    parts = [part for part in selected_parts(settings) if part.has_data(settings, data_dir)]
    if not parts:
        raise SettingsError(f"There is nothing to verify in {data_dir}. Choose another --data-dir.")
    found: list[Verification] = []
    unavailable: list[str] = []
    for part in parts:
        try:
            found.append(await part.verify(settings, data_dir, counting))
        except UnavailableError as error:
            unavailable.append(f"{part.name}: {with_reason(error)}")
    return found, unavailable
