"""`sandyard sandbox exec`: runs a command in a sandbox as if it ran locally."""

import base64
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.calls.names import id_of
from sandyard.entrypoints.cli.connecting import ServerChoice, connected, server_command
from sandyard.entrypoints.cli.exit_codes import CallFailedError, ExitCode

if TYPE_CHECKING:
    from sandyard_client import Client
    from sandyard_client.sandbox_flows import CommandBytes

_EPILOG = """\b
Examples:
  sandyard sandbox exec my-box -- pytest -x
  sandyard sandbox exec my-box --env LEVEL=3 --folder /workspace/app -- make test
  tar c src | sandyard sandbox exec -i my-box -- tar x -C /workspace
"""
_PIECE = 1 << 16


@server_command("exec", epilog=_EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("sandbox")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-i", "--stdin", "has_input", is_flag=True, help="Pass stdin to the command.")
@click.option("--env", "variables", multiple=True, help="NAME=VALUE; may be repeated.")
@click.option("--folder", help="Working directory; default: /workspace.")
@click.option("--user", help="User to run it as: user (default) or root.")
def exec_command(
    target: ServerChoice,
    sandbox: str,
    command: tuple[str, ...],
    has_input: bool,
    variables: tuple[str, ...],
    folder: str | None,
    user: str | None,
) -> None:
    """Run a command in a running sandbox.

    Its output, signals and exit code are passed through; 125: it could not be started or
    followed. Its output survives lost connections and a restart of the server.
    """
    from sandyard_client.sandbox_flows import CommandWish

    wish = CommandWish(command, _environment(variables), folder, user, has_input)
    try:
        with connected(target, patience_sec=60) as client:
            code = _run(client, id_of(client, sandbox), wish)
    except CallFailedError as error:
        error.code = ExitCode.EXEC_FAILED
        raise
    sys.exit(code)


def _environment(variables: tuple[str, ...]) -> dict[str, str] | None:
    for variable in variables:
        if "=" not in variable:
            raise click.BadParameter(f"{variable}: must be NAME=VALUE", param_hint="--env")
    return dict(variable.split("=", 1) for variable in variables) or None


def _run(client: "Client", sandbox_id: str, wish: "object") -> int:
    from sandyard_client.calls import consumed
    from sandyard_client.sandbox_flows import CommandWish, follow, start_command

    assert isinstance(wish, CommandWish)  # noqa: S101 - its type is imported where it is used
    command_id = client.run(start_command(client.calls, sandbox_id, wish))
    with _signals_passed_on(client, sandbox_id, command_id):
        if wish.has_input:
            arguments = (client, sandbox_id, command_id)
            threading.Thread(target=_feed, args=arguments, daemon=True).start()
        output = follow(client.calls, sandbox_id, command_id, as_bytes=True)
        return client.run(consumed(output, _write))


def _write(output: "CommandBytes") -> None:
    stream = (sys.stderr if output.stream == "stderr" else sys.stdout).buffer
    stream.write(output.data)
    stream.flush()


@contextmanager
def _signals_passed_on(client: "Client", sandbox_id: str, command_id: str) -> Iterator[None]:
    """Each is sent from its own thread: a signal handler must not wait for a server."""

    def receive(number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        threading.Thread(target=send, args=(name,), daemon=True).start()

    def send(name: str) -> None:
        from sandyard_client import SandyardClientError
        from sandyard_client.sandbox_flows import command_about

        request = command_about(sandbox_id, command_id, "POST", "/signal", {"signal": name})
        with suppress(SandyardClientError):
            client.call(request)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, receive) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _feed(client: "Client", sandbox_id: str, command_id: str) -> None:
    """Sends stdin in order; input is never sent twice."""
    from dataclasses import replace

    from sandyard_client import SandyardClientError
    from sandyard_client.sandbox_flows import command_about

    def send(data: bytes, *, close: bool = False) -> None:
        body = {"data": base64.b64encode(data).decode(), "encoding": "base64", "close": close}
        request = command_about(sandbox_id, command_id, "POST", "/input", body)
        client.call(replace(request, is_repeatable=False))

    with suppress(SandyardClientError):
        while piece := os.read(0, _PIECE):
            send(piece)
        send(b"", close=True)
