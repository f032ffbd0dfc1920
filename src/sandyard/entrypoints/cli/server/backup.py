"""`sandyard backup` and `sandyard restore`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.options import data_dir_option
from sandyard.entrypoints.cli.progress import counting

if TYPE_CHECKING:
    from sandyard.entrypoints.backup.archive import Manifest

_BACKUP = """\b
Examples:
  sandyard backup sandyard.backup
  sandyard backup --data-dir /var/lib/sandyard /mnt/backups/sandyard-$(date +%F)
  sandyard backup --without-secrets sandyard.backup
"""


@click.command("backup", epilog=_BACKUP)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@data_dir_option("The data dir; it may be in use.")
@click.option(
    "--without-secrets",
    is_flag=True,
    help="Leave out the generated tokens and keys, and the mails in the outbox.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def backup(file: Path, data_dir: Path, without_secrets: bool, force: bool) -> None:
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
    if store := manifest.about.get("store"):
        lines.append(f"stored files: in {store}; copy it after this, within a day")
    return lines


_RESTORE = """\b
Examples:
  sandyard restore sandyard.backup --data-dir /var/lib/sandyard
  sandyard restore sandyard.backup --same-node
  sandyard restore sandyard.backup --as-copy --data-dir ./copy
"""


@click.command("restore", epilog=_RESTORE)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@data_dir_option("An empty directory, or one that does not exist yet.")
@click.option(
    "--same-node",
    is_flag=True,
    help="Keep the node's name: only if the original data dir is never served again.",
)
@click.option(
    "--as-copy",
    is_flag=True,
    help="To try the backup beside the original: nothing is changed at the provider or at E2B, and "
    "no events or mails are sent.",
)
def restore(file: Path, data_dir: Path, same_node: bool, as_copy: bool) -> None:
    """Restore the backup FILE into an empty data dir.

    The file is checked before anything is written. The data dir becomes a new node, which does
    not touch sandboxes that the original still runs.
    """
    from sandyard.entrypoints.backup.restoring import restore_backup

    if same_node and as_copy:
        raise click.UsageError("--same-node and --as-copy exclude each other.")
    folder = data_dir.resolve()
    restored = restore_backup(file, folder, same_node=same_node, counting=counting, as_copy=as_copy)
    about = restored.manifest.about
    for line in summary(restored.manifest):
        click.echo(line)
    click.echo(f"{folder}: restored as of {about['made_at']}, node {restored.node}")
    click.echo(f"next: sandyard serve --data-dir {shlex.quote(str(folder))}")
