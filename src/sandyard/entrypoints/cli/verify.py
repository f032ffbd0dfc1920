"""`sandyard verify`."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.options import data_dir_option

if TYPE_CHECKING:
    from sandyard.broker.verification import VerificationReport

_EPILOG = """\b
Examples:
  sandyard verify
  sandyard verify --data-dir /var/lib/sandyard
  POOL_STORE=dynamodb sandyard verify
"""


@click.command("verify", epilog=_EPILOG)
@data_dir_option("The embedded engine's; it may be in use.")
def command(data_dir: Path) -> None:
    """Read the whole pool, also while it is in use, and say whether all that must hold does.

    No sandbox with two owners, no track and key with two sandboxes, every allocation with its
    lease, nothing deleted that is back. Exit code 1 if something is wrong.
    """
    from sandyard.kit.log import configure_logging

    configure_logging("ERROR", "text")
    report = asyncio.run(_verify(data_dir.resolve()))
    click.echo(
        f"{report.rows} sandboxes, {report.leases} leases, {report.tombstones} tombstones: "
        f"{len(report.problems) or 'no'} problem{'s' if len(report.problems) != 1 else ''}"
    )
    for problem in report.problems:
        click.echo(f"  {problem.sandbox_id} {problem.message}")
    if report.problems:
        sys.exit(1)


async def _verify(data_dir: Path) -> "VerificationReport":
    from sandyard.bootstrap.broker import open_pool
    from sandyard.bootstrap.engines import is_embedded
    from sandyard.broker.verification import verify
    from sandyard.entrypoints.cli.progress import counting
    from sandyard.kit.clock import SystemClock
    from sandyard.settings import SettingsError, load_settings

    settings = load_settings()
    if is_embedded(settings, "broker") and not (data_dir / "broker.db").exists():
        raise SettingsError(f"There is no pool in {data_dir}. Choose another --data-dir.")
    pool = open_pool(settings, data_dir=data_dir, clock=SystemClock())
    try:
        await pool.store.check()
        total = sum((await pool.store.counts()).values())
        with counting("verify", total) as progress:
            return await verify(pool.store, progress=progress)
    finally:
        await pool.store.close()
