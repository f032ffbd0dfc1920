"""`sandyard previews`."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.options import data_dir_option, locked_part
from sandyard.entrypoints.cli.progress import counting

if TYPE_CHECKING:
    from sandyard.previews.stores.old_columns import MigrationReport
    from sandyard.settings import Settings

_EPILOG = """\b
Examples:
  sandyard previews migrate run
  sandyard previews migrate validate
  sandyard previews migrate finish
  sandyard previews migrate rollback
"""
command = click.Group("previews", help="Migrate previews.", epilog=_EPILOG)


@command.command("migrate", epilog=_EPILOG)
@click.argument("step", type=click.Choice(["run", "validate", "finish", "rollback"]))
@data_dir_option("The embedded engine's, if DATABASE_URL is not set.")
def migrate(step: str, data_dir: Path) -> None:
    """Migrate projects from `sandbox_id` and `preview_url` to `sandbox_info`.

    \b
    run       fill sandbox_info where only the old columns are filled; may be repeated
    validate  compare both; exit code 1 if a row differs
    finish    drop the old columns, once both agree
    rollback  restore the old columns exactly as they were

    While both exist, both are written; PREVIEW_READS selects which are read.
    """
    with locked_part("previews", data_dir) as settings:
        report = asyncio.run(_migrate(step, settings, data_dir.resolve()))
    click.echo(f"{report.looked_at} projects, {report.changed} changed")
    for difference in report.differences[:20]:
        click.echo(f"  {difference}")
    if report.differences:
        click.echo(f"{len(report.differences)} differences")
        sys.exit(1)


async def _migrate(step: str, settings: "Settings", data_dir: Path) -> "MigrationReport":
    from sandyard.bootstrap.previews import open_old_columns

    async with open_old_columns(settings, data_dir) as columns:
        with counting(step, await columns.count()) as progress:
            report: MigrationReport = await getattr(columns, step)(progress)
            return report
