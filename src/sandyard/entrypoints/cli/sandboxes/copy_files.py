"""`sandyard sandbox cp`: copies files and folders in and out."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from sandyard.entrypoints.cli.calls.names import id_of
from sandyard.entrypoints.cli.connecting import ServerChoice, connected, server_command
from sandyard.entrypoints.cli.progress import transferring

_EPILOG = """\b
Examples:
  sandyard sandbox cp notes.txt my-box:
  sandyard sandbox cp ./src my-box:/workspace/src
  sandyard sandbox cp my-box:/workspace/report.html .
  sandyard sandbox cp my-box:/workspace/data.csv - | head
"""
_STREAM = "-"
"""Stands for stdin or stdout, instead of a local path."""


@server_command("cp", epilog=_EPILOG)
@click.argument("source")
@click.argument("target_path", metavar="TARGET")
def copy(target: ServerChoice, source: str, target_path: str) -> None:
    """Copy a file, or a folder with its contents, into or out of a sandbox, running
    or stopped.

    SANDBOX:PATH is a path in a sandbox, default /workspace. A file is copied into an existing
    folder; of a folder, the contents are copied. A file is written completely or not at all. Links
    that lead out of a folder are not copied out of a sandbox. `-` instead of a local path is stdin
    or stdout, for one file.
    """
    inside, outside = _inside(source), _inside(target_path)
    if (inside is None) == (outside is None):
        raise click.UsageError("One of the two must be SANDBOX:PATH, the other a local path.")
    if inside is not None:
        with _written_to(target_path) as path:
            _download(target, *inside, path)
    elif outside is not None:
        with _read_from(source) as path:
            _upload(target, path, *outside)


def _inside(name: str) -> tuple[str, str] | None:
    """Sandbox and path; None for a local path: it has no colon, or a slash before the first colon,
    or starts with a dot."""
    sandbox, colon, path = name.partition(":")
    if not colon or not sandbox or "/" in sandbox or sandbox.startswith("."):
        return None
    return sandbox, path or "/workspace"


@contextmanager
def _read_from(source: str) -> Iterator[Path]:
    """The local path to send; stdin is read completely first, so that the file is written
    completely or not at all."""
    if source != _STREAM:
        yield Path(source)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


@contextmanager
def _written_to(target: str) -> Iterator[Path]:
    """The local path to write to; stdout is written only once the download is complete."""
    if target != _STREAM:
        yield Path(target)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdout"
        yield path
        if path.is_dir():
            raise click.UsageError("A folder can't be written to stdout.")
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)


def _upload(target: ServerChoice, source: Path, sandbox: str, path: str) -> None:
    from sandyard_client.file_flows import upload

    if not source.exists():
        raise click.UsageError(f"{source}: there is no such file")
    with connected(target) as client, transferring(f"up {source.name}") as progress:
        client.run(upload(client.calls, id_of(client, sandbox), source, path, progress))


def _download(target: ServerChoice, sandbox: str, path: str, to: Path) -> None:
    from sandyard_client.file_flows import download

    with connected(target) as client, transferring(f"down {path}") as progress:
        try:
            client.run(download(client.calls, id_of(client, sandbox), path, to, progress))
        except OSError as error:
            raise click.ClickException(f"{to}: {error.strerror or error}") from error
