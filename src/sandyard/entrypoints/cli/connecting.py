"""How commands reach a server: `--profile` and `--url`, then the environment, then the profile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.exit_codes import call_failed

if TYPE_CHECKING:
    from sandyard_client import Client

_PATIENCE_SEC = 10.0
_REPORT_AFTER_SEC = 1.0


@dataclass(frozen=True, slots=True)
class ServerChoice:
    """Which server a command calls, and for how long it retries."""

    profile: str | None
    url: str | None
    patience_sec: float | None
    """How long to retry while the server is unavailable; None: the command's default."""


def _profiles(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    from sandyard_client.errors import ConfigurationError
    from sandyard_client.profiles import list_profiles

    try:
        return [name for name in list_profiles() if name.startswith(typed)]
    except ConfigurationError:
        return []


def connection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--profile`, `--url` and `--patience`, and passes them as `target`."""
    from functools import wraps

    @wraps(function)
    def with_target(
        *, profile: str | None, url: str | None, patience: float | None, **arguments: Any
    ) -> Any:
        return function(target=ServerChoice(profile, url, patience), **arguments)

    url = click.option("--url", help="URL of the server; overrides the profile.")
    profile = click.option(
        "--profile",
        envvar="SANDYARD_PROFILE",
        shell_complete=_profiles,
        help="Profile with the server and credentials, stored by `sandyard login`.",
    )
    patience = click.option(
        "--patience",
        type=click.FloatRange(0),
        help="Seconds to retry while the server is unavailable.",
    )
    return profile(url(patience(with_target)))


def report_retries() -> Callable[[str], None]:
    """Reports on stderr, once, why the command is waiting, if it waits for more than a moment."""
    import time

    report_at = [time.monotonic() + _REPORT_AFTER_SEC]

    def report(reason: str) -> None:
        if report_at and time.monotonic() >= report_at[0]:
            report_at.clear()
            click.echo(f"sandyard: {reason}; trying again …", err=True)

    return report


@contextmanager
def connected(target: ServerChoice, *, patience_sec: float = _PATIENCE_SEC) -> Iterator["Client"]:
    """A client that retries for this long. Errors from the server become exit codes."""
    from sandyard_client import (
        Client,
        Connection,
        RetryPolicy,
        SandyardClientError,
        UnauthorizedError,
    )

    try:
        connection = Connection.load(target.profile, url=target.url)
        chosen = patience_sec if target.patience_sec is None else target.patience_sec
        retries = RetryPolicy(within_sec=chosen)
        with Client(connection, retries=retries, on_retry=report_retries()) as client:
            yield client
    except SandyardClientError as error:
        if isinstance(error, UnauthorizedError):
            error.add_note("`sandyard login` stores another credential.")
        raise call_failed(error) from error
