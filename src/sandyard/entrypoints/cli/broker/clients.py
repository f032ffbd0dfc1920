"""`sandyard clients`."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.options import data_dir_option, quiet_settings, require_data

if TYPE_CHECKING:
    from sandyard.broker.clients.model import Client, SentToken
    from sandyard.broker.clients.service import Clients, TokenUse

_EPILOG = """\b
Examples:
  sandyard clients create acme --scope allocate --track-prefix acme- --rate 100/minute
  sandyard clients create grafana --scope read --expires-days 365
  sandyard clients list
  sandyard clients add-token acme --expires-days 90
  sandyard clients revoke acme 3k9x0v7q2m5n
  sandyard clients delete acme
"""
_DATA_DIR = data_dir_option("Directory of the embedded databases; it may be in use.")
_EXPIRES = click.option(
    "--expires-days", type=click.FloatRange(min=0, min_open=True), help="Lifetime of the token."
)


class _Text(click.ParamType[str]):
    """Text of a pattern; `name` is shown in the help."""

    def __init__(self, name: str, pattern: str, wanted: str) -> None:
        self.name = name
        self._pattern = pattern
        self._wanted = wanted

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(self._pattern, value):
            self.fail(f"must be {self._wanted}", param, ctx)
        return value


class _Rate(click.ParamType[str]):
    name = "rate"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from sandyard.kit.rates import Rate

        try:
            Rate.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return value


_NAME = click.argument(
    "name",
    type=_Text("name", r"[a-z0-9][a-z0-9-]{0,62}", "1 to 63 lower-case letters, digits and -"),
)
_PREFIX = _Text("prefix", r"[A-Za-z0-9._:-]{0,128}", "up to 128 letters, digits, ., _, : and -")
command = click.Group(
    "clients", help="Manage clients of the Broker, their tokens and limits.", epilog=_EPILOG
)


@command.command("create", epilog=_EPILOG)
@_NAME
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice(["allocate", "read", "operate", "admin"]),
    help="Scope of the client; may be repeated.",
)
@click.option("--track-prefix", type=_PREFIX, default="", help="Required prefix of its track ids.")
@click.option("--rate", type=_Rate(), help="Rate limit of its calls, such as 100/minute.")
@click.option("--max-leases", type=click.IntRange(1, 1_000_000), help="Maximum number of leases.")
@_EXPIRES
@_DATA_DIR
def create(
    name: str,
    scopes: tuple[str, ...],
    track_prefix: str,
    rate: str | None,
    max_leases: int | None,
    expires_days: float | None,
    data_dir: Path,
) -> None:
    """Create a client with its first token, which is shown only once."""
    from sandyard.broker.clients.model import ClientScope, Limits

    limits = Limits([ClientScope(each) for each in scopes], track_prefix, rate, max_leases)
    expires_at = _expiry(expires_days)
    _show(_run(data_dir, lambda clients: clients.create(name, limits, expires_at=expires_at)))


@command.command("list", epilog=_EPILOG)
@_DATA_DIR
def list_clients(data_dir: Path) -> None:
    """List the clients, with the ids of their tokens and when each was last used."""
    for client, tokens in _run(data_dir, lambda clients: clients.list()):
        click.echo(_line(client))
        for token in tokens:
            click.echo(f"  {_token_line(token)}")


@command.command("add-token", epilog=_EPILOG)
@_NAME
@_EXPIRES
@_DATA_DIR
def add_token(name: str, expires_days: float | None, data_dir: Path) -> None:
    """Add a token to a client. To replace one: add, hand out, then revoke the old one."""
    expires_at = _expiry(expires_days)
    _show(_run(data_dir, lambda clients: clients.add_token(name, expires_at=expires_at)))


@command.command("revoke", epilog=_EPILOG)
@_NAME
@click.argument("token_id")
@_DATA_DIR
def revoke(name: str, token_id: str, data_dir: Path) -> None:
    """Revoke a token; it takes effect in every process within half a minute."""
    _run(data_dir, lambda clients: clients.revoke_token(name, token_id))
    click.echo(f"revoked {token_id}")


@command.command("delete", epilog=_EPILOG)
@_NAME
@_DATA_DIR
def delete(name: str, data_dir: Path) -> None:
    """Remove a client and its tokens. Its leases stay until they end."""
    _run(data_dir, lambda clients: clients.delete(name))
    click.echo(f"deleted {name}")


def _run(data_dir: Path, work: "Callable[[Clients], Awaitable[Any]]") -> Any:
    from sandyard.broker.wiring.pool import open_clients

    settings = quiet_settings()
    require_data(settings, "broker", data_dir)
    folder = data_dir.resolve()

    async def run() -> Any:
        async with open_clients(settings, folder) as clients:
            return await work(clients)

    return asyncio.run(run())


def _expiry(days: float | None) -> int | None:
    if days is None:
        return None
    return int((datetime.now(UTC) + timedelta(days=days)).timestamp())


def _show(token: "SentToken") -> None:
    click.echo(f"{token.client}: token {token.token_id}, shown only once:", err=True)
    click.echo(token.text)


def _line(client: "Client") -> str:
    limits = {
        "tracks": f"{client.track_prefix}*" if client.track_prefix else None,
        "rate": client.rate,
        "max leases": client.max_leases,
    }
    bounds = [f"{name} {value}" for name, value in limits.items() if value is not None]
    return ", ".join([f"{client.name}: {client.scopes}", *bounds])


def _token_line(token: "TokenUse") -> str:
    ends = "does not end" if token.expires_at is None else f"ends {_time(token.expires_at)}"
    used = "never used" if token.last_used_at is None else f"used {_time(token.last_used_at)}"
    return f"{token.token_id}  {ends}, {used}"


def _time(at: int) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%MZ}"
