"""`sandyard ssh-key` and `sandyard ssh-config`."""

from pathlib import Path

import click

from sandyard.entrypoints.cli.connecting import (
    ServerChoice,
    ServerCommands,
    connected,
    server_command,
)
from sandyard.entrypoints.cli.sandboxes.names import id_of
from sandyard.entrypoints.cli.showing import View, field

_KEY_EPILOG = """\b
Examples:
  sandyard ssh-key add ~/.ssh/id_ed25519.pub --name laptop
  sandyard ssh-key ls
  sandyard ssh-key rm ssk-7r2d9f0h3j5k8l1zq
"""
_CONFIG_EPILOG = """\b
Examples:
  sandyard ssh-config my-box >> ~/.ssh/config
  sandyard ssh-config --known-hosts >> ~/.ssh/known_hosts
"""
_COLUMNS = (
    field("key", "ssh_key_id"),
    field("name", "name"),
    field("fingerprint", "fingerprint"),
    field("added", "created_at"),
    field("by API key", "api_key_id", is_wide=True),
)
keys = ServerCommands("ssh-key", help="The keys that log in to your sandboxes.", epilog=_KEY_EPILOG)


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
    view.show_one(added, _COLUMNS)


@keys.server_command("ls", watch=True)
def list_keys(target: ServerChoice, view: View) -> None:
    """List your SSH keys."""
    from sandyard_client.sandbox_flows import about

    with connected(target) as client:
        listing = about("GET", "/ssh-keys", query={"limit": 100})
        view.show(lambda: list(client.items(listing, "ssh_keys")), _COLUMNS)


@keys.server_command("rm")
@click.argument("ssh_key_id")
def remove(target: ServerChoice, ssh_key_id: str) -> None:
    """Remove a key; its sessions end within five seconds."""
    from sandyard_client.sandbox_flows import about

    with connected(target) as client:
        client.call(about("DELETE", f"/ssh-keys/{ssh_key_id}"))
    click.echo(f"removed {ssh_key_id}")


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
