"""`sandyard login`."""

import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.connecting import report_retries
from sandyard.entrypoints.cli.exit_codes import call_failed

if TYPE_CHECKING:
    from sandyard_client import Client, Connection

_EPILOG = """\b
Examples:
  sandyard login --url https://sandyard.example.com
  sandyard login --username ann --password-stdin < password
  sandyard login --token track < track-token
  sandyard login --data-dir ./data
  sandyard login --profile staging --url https://staging.example.com --token admin
"""
_PATIENCE_SEC = 10.0
_FIELDS = {
    "track": "track_token",
    "admin": "admin_token",
    "telemetry": "telemetry_token",
    "device": "device_key",
    "account": "api_key",
}
_FILES = {
    "track": "broker_api_token",
    "admin": "broker_admin_token",
    "telemetry": "telemetry_admin_token",
}


@click.command("login", epilog=_EPILOG)
@click.option("--profile", envvar="SANDYARD_PROFILE", default="default")
@click.option("--url", help="URL of the server; default: the profile's, or http://127.0.0.1:8080.")
@click.option("--username", help="User name or e-mail address of an account; default: prompt.")
@click.option("--password-stdin", is_flag=True, help="Read the password from stdin.")
@click.option(
    "--token",
    type=click.Choice([*_FIELDS]),
    help="Store a token of this kind, read from stdin, instead.",
)
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Store the generated tokens of a server on this machine instead.",
)
def command(
    profile: str,
    url: str | None,
    username: str | None,
    password_stdin: bool,
    token: str | None,
    data_dir: Path | None,
) -> None:
    """Store a server and credentials in a profile, after checking them.

    Without options it logs in to an account and stores a new API key. The file is
    ~/.config/sandyard/config (or SANDYARD_CONFIG), with mode 0600.
    """
    from sandyard_client import SandyardClientError
    from sandyard_client.profiles import write_profile

    try:
        connection = _server(profile, url)
        if data_dir is not None:
            values = _local_tokens(connection, data_dir)
        elif token is not None:
            values = {_FIELDS[token]: _tried(connection, token, _secret(f"The {token} token"))}
        else:
            values = {"api_key": _new_key(connection, username, password_stdin)}
        path = write_profile(profile, {"url": connection.url, **values})
    except SandyardClientError as error:
        raise call_failed(error) from error
    click.echo(f"{profile}: {connection.url}, {', '.join(values)} ({path})")


def _server(profile: str, url: str | None) -> "Connection":
    from sandyard_client import Connection
    from sandyard_client.connection import LOCAL_URL
    from sandyard_client.profiles import list_profiles, read_profile

    stored = read_profile(profile) if profile in list_profiles() else {}
    return Connection(url or stored.get("url") or LOCAL_URL)


def _client(connection: "Connection") -> "Client":
    from sandyard_client import Client, RetryPolicy

    retries = RetryPolicy(within_sec=_PATIENCE_SEC)
    return Client(connection, retries=retries, on_retry=report_retries())


def _secret(what: str) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(what, hide_input=True, err=True))
    secret = sys.stdin.readline().strip()
    if not secret:
        raise click.UsageError("There was no line on stdin.")
    return secret


def _local_tokens(connection: "Connection", data_dir: Path) -> dict[str, str]:
    found = {
        kind: (data_dir / "secrets" / name).read_text().strip()
        for kind, name in _FILES.items()
        if (data_dir / "secrets" / name).is_file()
    }
    if not found:
        raise click.ClickException(f"There are no tokens in {data_dir}/secrets.")
    return {_FIELDS[kind]: _tried(connection, kind, secret) for kind, secret in found.items()}


def _tried(connection: "Connection", kind: str, secret: str) -> str:
    """The secret, if the server accepts it; a device's key is not checked here, but by its
    device."""
    from dataclasses import replace

    from sandyard_client import Credential, NotFoundError, Request

    paths = {
        Credential.TRACK: "/v1/sandboxes/none",
        Credential.ADMIN: "/v1/admin/stats",
        Credential.TELEMETRY: "/telemetry/v1/devices",
        Credential.ACCOUNT: "/api/v1/me",
    }
    credential = Credential(kind)
    if credential in paths:
        given: dict[str, Any] = {_FIELDS[kind]: secret}
        with _client(replace(connection, **given)) as client:
            headers = {"X-Track-ID": "login"} if credential is Credential.TRACK else {}
            request = Request(
                "GET", paths[credential], credential, is_repeatable=True, headers=headers
            )
            try:
                client.call(request)
            except NotFoundError as error:
                # A track's check asks for a sandbox that does not exist; else a part is missing.
                if credential is not Credential.TRACK:
                    message = f"The server has no calls for the {kind} token."
                    raise click.ClickException(message) from error
    return secret


def _new_key(connection: "Connection", username: str | None, password_stdin: bool) -> str:
    from dataclasses import replace

    from sandyard_client import Credential, Request

    if username is None and not sys.stdin.isatty():
        raise click.UsageError("Missing option '--username': there is no terminal to ask on.")
    login = username or click.prompt("User name or e-mail address", err=True)
    password = sys.stdin.readline().rstrip("\r\n") if password_stdin else _secret("Password")
    with _client(connection) as client:
        body = {"login": login, "password": password}
        session = client.call(Request("POST", "/api/v1/auth/login", json=body))
    with _client(replace(connection, api_key=session["access_token"])) as client:
        # The time makes the name different from those of earlier logins.
        at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        body = {"name": f"sandyard login on {socket.gethostname()[:32]}, {at}"}
        made = client.call(Request("POST", "/api/v1/api-keys", Credential.ACCOUNT, json=body))
    return str(made["api_key"])
