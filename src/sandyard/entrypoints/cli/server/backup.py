"""`sandyard backup`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.options import data_dir_option
from sandyard.entrypoints.cli.progress import counting

if TYPE_CHECKING:
    from sandyard.entrypoints.backup.archive import Manifest

_EPILOG = """\b
Examples:
  sandyard backup sandyard.backup
  sandyard backup --data-dir /var/lib/sandyard /mnt/backups/sandyard-$(date +%F)
  sandyard backup --without-secrets sandyard.backup
"""


@click.command("backup", epilog=_EPILOG)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@data_dir_option("The data dir; it may be in use.")
@click.option(
    "--without-secrets",
    is_flag=True,
    help="Leave out the generated tokens and keys, and the mails in the outbox.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def command(file: Path, data_dir: Path, without_secrets: bool, force: bool) -> None:
    """Write the data dir to FILE, also while the server runs.

    The databases of all parts, the files of stopped sandboxes and the secrets are of the same
    point in time. The file has mode 0600, and is read back and checked before it gets its name.
    FILE must be outside the data dir, and is replaced only with --force.
    Parts on PostgreSQL or DynamoDB are not included: back them up with their own tools.
    """
    from sandyard.entrypoints.backup.writing import find_source, write_backup
    from sandyard.settings import load_settings

    source = find_source(load_settings(), data_dir.resolve(), with_secrets=not without_secrets)
    manifest = write_backup(source, file.absolute(), counting, replace=force)
    for line in summary(manifest):
        click.echo(line)
    click.echo(f"{file}: written and checked, {file.stat().st_size:,} bytes")


def summary(manifest: "Manifest") -> list[str]:
    """What is in a backup, and what is not."""
    from sandyard.entrypoints.backup.contents import has_secrets

    schemas = manifest.about["schemas"]
    others = [entry for name, entry in manifest.files.items() if name not in schemas]
    lines = [f"{name}: {manifest.files[name].size:,} bytes" for name in schemas]
    lines.append(f"other files: {len(others)}, {sum(each.size for each in others):,} bytes")
    lines.append(f"secrets: {'included' if has_secrets(manifest.files) else 'not in the file'}")
    lines += [
        f"{part}: not in the data dir; back it up with its engine"
        for part in manifest.about["elsewhere"]
    ]
    return lines
