"""`sandyard lease exec`: holds a lease while a command runs."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from sandyard.entrypoints.cli.connecting import ServerChoice, connected, server_command
from sandyard.entrypoints.cli.exit_codes import CallFailedError, ExitCode

if TYPE_CHECKING:
    from sandyard_client import Lease
    from sandyard_client.models import TicketAnswer

_EPILOG = """\b
Examples:
  sandyard lease exec --wait 60 -- pytest tests/lab
  sandyard lease exec --track nightly --minutes 30 --renew 15 -- sh -c 'ssh lab@$SANDBOX_NAME'
"""
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


class Interrupted(BaseException):
    """A signal came before the command had begun."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class SignalRelay:
    """Before the command runs a signal ends the attempt; during the command it is passed on; while
    the lease is being released it is ignored."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_starting = False
        self._is_over = False
        self._pending: list[int] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        numbers = (*_PASSED_ON, *_FROM_TERMINAL)
        before = {number: signal.signal(number, self._receive) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, command: tuple[str, ...], environment: dict[str, str]) -> int:
        """Returns its exit code, by the shell's convention."""
        self._is_starting = True
        try:
            self._process = subprocess.Popen(command, env=environment)  # noqa: S603 - the user's command
            for number in self._pending:
                self._process.send_signal(number)
            code = self._process.wait()
        finally:
            self._is_over = True
        return 128 - code if code < 0 else code

    def end_command(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._is_over:
            return
        if self._process is None and self._is_starting:
            self._pending.append(number)
        elif self._process is None:
            self._is_over = True
            raise Interrupted(number)
        elif number in _PASSED_ON or not _is_at_terminal():
            self._process.send_signal(number)


def _is_at_terminal() -> bool:
    """Whether the terminal also sends its signals to the command."""
    return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()


def wish_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option(
            "--wait",
            type=click.FloatRange(0),
            default=0.0,
            help="Seconds to wait for a free sandbox.",
        ),
        click.option("--minutes", type=click.IntRange(1), help="Duration of the lease."),
        click.option("--name-prefix", help="Only a sandbox whose name has this prefix."),
        click.option("--label", help="The lab's label, stored with the lease."),
        click.option("--urgency", type=click.IntRange(0, 7), help="0 is served first, 7 last."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@contextmanager
def position_line() -> Iterator[Callable[["TicketAnswer"], None]]:
    """A line that shows the queue position on a terminal, and is cleared after the wait."""

    def tell(ticket: "TicketAnswer") -> None:
        wait = ticket.estimated_wait_sec
        about = "" if wait is None else f", about {wait} s"
        click.echo(f"\rwaiting, position {ticket.position}{about}\x1b[K", err=True, nl=False)

    if not sys.stderr.isatty():
        yield lambda _ticket: None
        return
    try:
        yield tell
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)


@server_command("exec", epilog=_EPILOG, context_settings={"ignore_unknown_options": True})
@click.option("--track", help="Track id; default: a generated one.")
@click.option("--key", help="Idempotency key of an existing lease; default: a new lease.")
@wish_options
@click.option(
    "--renew",
    "renew_minutes",
    type=click.IntRange(1),
    default=15,
    help="Renew the lease so that it lasts at least this many more minutes.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_command(
    target: ServerChoice, command: tuple[str, ...], track: str | None, key: str | None, **wish: Any
) -> None:
    """Run a command with a lease, and release the lease when the command ends.

    The command gets SANDBOX_ID, SANDBOX_NAME, SANDBOX_EXTERNAL_ID and SANDYARD_TRACK in its
    environment. Signals are passed on to it, and its exit code is that of `sandyard`. 124: no
    sandbox was free in time; 125: the lease failed; 126, 127: the command could not be started.
    """
    _require_command(command[0])
    unique = uuid.uuid4().hex[:12]
    relay = SignalRelay()
    with relay.installed():
        try:
            code = _held(target, relay, command, track or f"exec-{unique}", key or unique, wish)
        except Interrupted as interrupted:
            code = 128 + interrupted.number
        except CallFailedError as error:
            error.code = _exec_code(error.code)
            raise
    sys.exit(code)


def _held(
    target: ServerChoice,
    relay: SignalRelay,
    command: tuple[str, ...],
    track: str,
    key: str,
    wish: dict[str, Any],
) -> int:
    from sandyard_client import Lease
    from sandyard_client.lease_flows import LeaseWish, settle

    def lost(error: Exception) -> None:
        click.echo(f"sandyard: {error}; the command is ended", err=True)
        relay.end_command()

    with connected(target, patience_sec=60) as client:
        try:
            with position_line() as tell_position:
                lease = Lease.acquire(
                    track=track, key=key, client=client, on_wait=tell_position, on_lost=lost, **wish
                )
            with lease:
                return _run(relay, command, lease)
        except Interrupted as interrupted:
            # Also if the signal came after the response, before the block that releases the lease.
            client.run(settle(client.calls, LeaseWish(track, key), interrupted))
            raise


def _run(relay: SignalRelay, command: tuple[str, ...], lease: "Lease") -> int:
    try:
        return relay.run(command, _environment(lease))
    except OSError as error:
        raise CallFailedError(
            f"{command[0]}: {error.strerror}", ExitCode.EXEC_NOT_EXECUTABLE
        ) from error


def _exec_code(code: int) -> int:
    """Codes that commands rarely use themselves."""
    if code == ExitCode.NONE_FREE:
        return ExitCode.EXEC_WAITED_IN_VAIN
    return code if code == ExitCode.EXEC_NOT_EXECUTABLE else ExitCode.EXEC_FAILED


def _environment(lease: "Lease") -> dict[str, str]:
    return os.environ | {
        "SANDBOX_ID": lease.sandbox_id,
        "SANDBOX_NAME": lease.name,
        "SANDBOX_EXTERNAL_ID": lease.external_id,
        "SANDYARD_TRACK": lease.track,
    }


def _require_command(name: str) -> None:
    """Checked before a sandbox is leased for it."""
    from shutil import which

    if which(name) is None:
        if os.path.exists(name):  # noqa: PTH110 - like `which`
            raise CallFailedError(f"{name}: is not executable", ExitCode.EXEC_NOT_EXECUTABLE)
        raise CallFailedError(f"{name}: there is no such command", ExitCode.EXEC_NOT_FOUND)
