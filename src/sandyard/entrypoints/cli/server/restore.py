"""`sandyard restore`."""

import shlex
from pathlib import Path

import click

from sandyard.entrypoints.cli.options import data_dir_option
from sandyard.entrypoints.cli.progress import counting
from sandyard.entrypoints.cli.server.backup import summary

_EPILOG = """\b
Examples:
  sandyard restore sandyard.backup --data-dir /var/lib/sandyard
  sandyard restore sandyard.backup --same-node
"""


@click.command("restore", epilog=_EPILOG)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@data_dir_option("An empty directory, or one that does not exist yet.")
@click.option(
    "--same-node",
    is_flag=True,
    help="Keep the node's name: only if the original data dir is never served again.",
)
def command(file: Path, data_dir: Path, same_node: bool) -> None:
    """Restore the backup FILE into an empty data dir.

    The file is checked before anything is written. The data dir becomes a new node, which does
    not touch sandboxes that the original still runs.
    """
    from sandyard.entrypoints.backup.restoring import restore_backup

    folder = data_dir.resolve()
    restored = restore_backup(file, folder, same_node=same_node, counting=counting)
    about = restored.manifest.about
    for line in summary(restored.manifest):
        click.echo(line)
    click.echo(f"{folder}: restored as of {about['made_at']}, node {restored.node}")
    click.echo(f"next: sandyard serve --data-dir {shlex.quote(str(folder))}")
