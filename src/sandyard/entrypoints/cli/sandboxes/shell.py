"""`sandyard sandbox shell`: a terminal in a sandbox, in this terminal."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from sandyard.entrypoints.cli.calls.names import id_of
from sandyard.entrypoints.cli.connecting import ServerChoice, connected, server_command
from sandyard.entrypoints.cli.exit_codes import CallFailedError, ExitCode

if TYPE_CHECKING:
    from sandyard_client import Connection
    from websockets.sync.client import ClientConnection

_EPILOG = """\b
Examples:
  sandyard sandbox shell my-box
  sandyard sandbox shell my-box --command 'python3 -i'
"""
_KEYS = 4096
_MOST_CELLS = 1000


@server_command("shell", epilog=_EPILOG)
@click.argument("sandbox")
@click.option("--command", "line", help="Command line to run; default: a login shell.")
@click.option("--folder", help="Working directory; default: /workspace.")
def shell(target: ServerChoice, sandbox: str, line: str | None, folder: str | None) -> None:
    """Open a terminal in a running sandbox, and exit with its exit code."""
    with connected(target) as client:
        sandbox_id = id_of(client, sandbox)
        wished = {"command": line, "folder": folder}
        query = _size() | {name: value for name, value in wished.items() if value is not None}
        path = f"/api/v1/sandboxes/{sandbox_id}/terminal?{urlencode(query)}"
        code = _attached(client.connection, path)
    sys.exit(code)


def _attached(connection: "Connection", path: str) -> int:
    from sandyard_client import Credential
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import connect

    address = "ws" + connection.url.removeprefix("http") + path
    headers = connection.headers_for(Credential.ACCOUNT)
    try:
        with connect(address, additional_headers=headers, max_size=None, proxy=None) as socket:
            return _Terminal(socket).serve()
    except (OSError, WebSocketException) as error:
        message = f"The terminal was lost: {error}"
        raise CallFailedError(message, ExitCode.EXEC_FAILED) from error


class _Terminal:
    """Input is sent from a separate thread; output is received here. Nothing is sent before the
    server has attached the terminal: if it refuses and closes the connection meanwhile, the failed
    write can hide its message."""

    def __init__(self, socket: "ClientConnection") -> None:
        self._socket = socket

    def serve(self) -> int:
        _exit_code_of(json.loads(self._socket.recv()))  # attached, or an error
        threading.Thread(target=self._send_keys, daemon=True).start()
        with _raw_terminal(), self._resizing():
            for message in self._socket:
                if isinstance(message, bytes):
                    sys.stdout.buffer.write(message)
                    sys.stdout.buffer.flush()
                elif (code := _exit_code_of(json.loads(message))) is not None:
                    return code
        raise CallFailedError("The terminal was closed.", ExitCode.EXEC_FAILED)

    def _send_keys(self) -> None:
        from websockets.exceptions import ConnectionClosed

        with suppress(OSError, ConnectionClosed):
            while keys := os.read(0, _KEYS):
                self._socket.send(keys)
            if not os.isatty(0):
                self._socket.send(b"\x04")

    @contextmanager
    def _resizing(self) -> Iterator[None]:
        def resize(*_: Any) -> None:
            threading.Thread(target=self._send_size, daemon=True).start()

        before = signal.signal(signal.SIGWINCH, resize)
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)

    def _send_size(self) -> None:
        from websockets.exceptions import ConnectionClosed

        message = {"type": "resize", **_size()}
        with suppress(ConnectionClosed):
            self._socket.send(json.dumps(message))


def _size() -> dict[str, Any]:
    """The size of this terminal, within the server's limits."""
    size = get_terminal_size()
    return {"columns": min(size.columns, _MOST_CELLS), "rows": min(size.lines, _MOST_CELLS)}


def _exit_code_of(message: dict[str, Any]) -> int | None:
    """The exit code, once the terminal has ended."""
    if message["type"] == "error":
        text = f"{message['code']}: {message['message']}"
        raise CallFailedError(text, ExitCode.EXEC_FAILED)
    return int(message["exit_code"]) if message["type"] == "exit" else None


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Every key goes to the sandbox, including Ctrl-C; the terminal is restored at the end."""
    if not os.isatty(0):
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
