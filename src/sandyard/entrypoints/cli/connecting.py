"""How commands reach a server: `--profile` and `--url`, then the environment, then the profile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.exit_codes import call_failed
from sandyard.entrypoints.cli.showing import View, view_options

if TYPE_CHECKING:
    from sandyard_client import Client, Request

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


_OPTIONS = (
    click.Option(
        ["--profile"],
        envvar="SANDYARD_PROFILE",
        shell_complete=_profiles,
        help="Profile with the server and credentials, stored by `sandyard login`.",
    ),
    click.Option(["--url"], help="URL of the server; overrides the profile."),
    click.Option(
        ["--patience"],
        type=click.FloatRange(0),
        help="Seconds to retry while the server is unavailable.",
    ),
)


def server_command(
    name: str, *, watch: bool = False, **attributes: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command that calls a server. It gets `--profile`, `--url` and `--patience` as `target`; if
    it takes a `view`, also `-o` and optionally `--watch`."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        has_view = "view" in signature(function).parameters

        @wraps(function)
        def call(
            *, profile: str | None, url: str | None, patience: float | None, **arguments: Any
        ) -> Any:
            if has_view:
                arguments["view"] = View(arguments.pop("output"), arguments.pop("watch", False))
            return function(target=ServerChoice(profile, url, patience), **arguments)

        made = click.command(name, cls=click.Command, **attributes)(call)
        made.params += [*(view_options(watch=watch) if has_view else ()), *_OPTIONS]
        return made

    return decorate


def report_retries() -> Callable[[str], None]:
    """Reports on stderr, once, why the command is waiting, if it waits for more than a moment."""
    import time

    report_at = [time.monotonic() + _REPORT_AFTER_SEC]

    def report(reason: str) -> None:
        if report_at and time.monotonic() >= report_at[0]:
            report_at.clear()
            click.echo(f"sandyard: {reason}; trying again …", err=True)

    return report


def operator_call(method: str, path: str, **more: Any) -> "Request":
    """A call with the admin token. Reads may be retried; changes may not, or the retry would be
    refused as already done."""
    from sandyard_client import Credential, Request

    return Request(method, path, Credential.ADMIN, is_repeatable=method == "GET", **more)


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
