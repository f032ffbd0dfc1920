"""`sandyard ssh-key` and `sandyard ssh-config`."""

from pathlib import Path

import click

from sandyard.entrypoints.cli.calls.names import id_of
from sandyard.entrypoints.cli.calls.row import Rows
from sandyard.entrypoints.cli.connecting import (
    ServerChoice,
    connected,
    server_command,
)
from sandyard.entrypoints.cli.sandboxes.rows import SSH_KEY_COLUMNS, ssh_key
from sandyard.entrypoints.cli.showing import View, columns_of

_KEY_EPILOG = """\b
Examples:
  sandyard ssh-key add ~/.ssh/id_ed25519.pub --name laptop
"""
_CONFIG_EPILOG = """\b
Examples:
  sandyard ssh-config my-box >> ~/.ssh/config
  sandyard ssh-config --known-hosts >> ~/.ssh/known_hosts
"""
keys = Rows(
    "ssh-key",
    ssh_key,
    columns=SSH_KEY_COLUMNS,
    help="The keys that log in to your sandboxes.",
    epilog=_KEY_EPILOG,
)


@keys.server_command("add")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", help="Its name in your list; default: the file's.")
def add(target: ServerChoice, view: View, file: Path, name: str | None) -> None:
    """Add a public key, such as ~/.ssh/id_ed25519.pub. Added with an API key, it is valid as long
    as that is."""
    from sandyard_client.sandbox_flows import about

    body = {"name": name or file.stem, "public_key": file.read_text(errors="replace")[:16_384]}
    with connected(target) as client:
        added = client.call(about("POST", "/ssh-keys", repeatable=False, json=body))
    view.show_one(added, columns_of(SSH_KEY_COLUMNS))


@server_command("ssh-config", epilog=_CONFIG_EPILOG)
@click.argument("sandboxes", nargs=-1)
@click.option("--known-hosts", is_flag=True, help="Write the host keys instead.")
def config(target: ServerChoice, sandboxes: tuple[str, ...], known_hosts: bool) -> None:
    """Write `Host` blocks for ~/.ssh/config, so that ssh, scp and editors reach these
    sandboxes by name; without names, one block for all ids."""
    from sandyard_client.sandbox_flows import about

    with connected(target) as client:
        address = client.call(about("GET", "/ssh-keys/address"))
        if address["port"] is None:
            raise click.ClickException("This server has no SSH: its operator sets SSH_PORT.")
        if known_hosts:
            for key in address["host_keys"]:
                click.echo(f"[{address['host']}]:{address['port']} {key}")
            return
        users = {name: id_of(client, name) for name in sandboxes} or {"sbx-*": "%n"}
    for name, user in users.items():
        click.echo(
            f"Host {name}\n  HostName {address['host']}\n  Port {address['port']}\n  User {user}"
        )
