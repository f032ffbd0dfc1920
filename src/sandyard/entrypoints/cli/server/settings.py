"""`sandyard settings`."""

import os
import re
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from sandyard.entrypoints.cli.options import data_dir_option
from sandyard.entrypoints.cli.showing import Column, View, columns_of

_EPILOG = """\b
Examples:
  sandyard settings
  sandyard settings --changed
  sandyard settings --data-dir /var/lib/sandyard -o json
"""
_COLUMNS = (*columns_of("setting"), Column("from", itemgetter("from")), *columns_of("value"))


@click.command("settings", epilog=_EPILOG)
@click.option("--changed", is_flag=True, help="Only settings that do not have their default.")
@click.option("-o", "--output", type=click.Choice(["json", "table"]), default="table")
@data_dir_option("The server's data dir, for the secrets that it has generated.")
def command(changed: bool, output: str, data_dir: Path) -> None:
    """Print the values in force, and where each comes from; secrets are hidden. Exit code 1 and a
    line per mistake if one is invalid."""
    from pydantic import SecretStr

    from sandyard.entrypoints.server.data_dir import secret_file
    from sandyard.settings import close_variables, list_in_force, load_settings

    rows = []
    for name, value, source in list_in_force(load_settings()):
        generated = secret_file(data_dir.resolve(), name.lower())
        if value is None and generated.exists():
            value, source = SecretStr(""), str(generated)
        if not changed or source != "default":
            rows.append({"setting": name, "value": _shown(value), "from": source})
    click.echo(View(output).rendered(rows, _COLUMNS))
    for name, meant in close_variables(os.environ):
        click.echo(f"{name} is not a setting. Did you mean {meant}?", err=True)


def _shown(value: Any) -> str | None:
    """Without secrets, also those in URLs."""
    from pydantic import SecretStr

    if isinstance(value, SecretStr):
        return "(hidden)"
    return None if value is None else re.sub(r"://[^/@]*@", "://(hidden)@", str(value))
