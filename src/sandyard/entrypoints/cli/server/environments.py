"""`sandyard environments`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.options import data_dir_option

if TYPE_CHECKING:
    from sandyard.runtime.local.root_filesystems.store import RootFilesystems

_EPILOG = """\b
Examples:
  sandyard environments import debian12 debian.tar
  sandyard environments import node22 ./node22-oci
  sandyard environments list
  sandyard environments remove debian12
"""
_MEGABYTE = 1 << 20
command = click.Group(
    "environments", help="Manage root file systems for sandboxes, on this node.", epilog=_EPILOG
)


@command.command("import", epilog=_EPILOG)
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@data_dir_option("Where they are kept; a server may be running there.")
def import_(name: str, file: Path, data_dir: Path) -> None:
    """Import an environment from an OCI layout (a folder or a tar) or a tar of a root file system.

    An existing one with this NAME is replaced, for sandboxes that start from now on.
    """
    from sandyard.kit.clock import SystemClock

    made = _environments(data_dir).add(name, file, now=SystemClock().now())
    click.echo(f"{made.name}: {made.size_bytes / _MEGABYTE:.0f} MB")


@command.command("list", epilog=_EPILOG)
@data_dir_option("Where they are kept.")
def list_(data_dir: Path) -> None:
    """List the environments."""
    from sandyard.kit.clock import utc_time

    for each in _environments(data_dir).list():
        size = f"{each.size_bytes / _MEGABYTE:.0f} MB"
        click.echo(f"{each.name}\t{size}\t{utc_time(each.created_at):%Y-%m-%dT%H:%M:%SZ}")


@command.command("remove", epilog=_EPILOG)
@click.argument("name")
@data_dir_option("Where they are kept; a server may be running there.")
def remove(name: str, data_dir: Path) -> None:
    """Remove an environment that no running sandbox uses."""
    _environments(data_dir).remove(name)
    click.echo(f"{name} is removed")


def _environments(data_dir: Path) -> "RootFilesystems":
    from sandyard.platform.wiring.local_runtime import runtime_folder
    from sandyard.runtime.local.root_filesystems.store import RootFilesystems

    return RootFilesystems(runtime_folder(data_dir.resolve()))
