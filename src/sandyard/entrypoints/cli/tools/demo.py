"""`sandyard demo`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

_EPILOG = """\b
Examples:
  sandyard demo
  sandyard demo --port 9000 --data-dir /tmp/demo
"""
_START_SEC = 60
_TICK_SEC = 1.0


@click.command("demo", epilog=_EPILOG)
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", default=8080, type=click.IntRange(1, 65535), help="Port.")
@click.option(
    "--data-dir",
    default="./demo-data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Separate data dir, for generated data.",
)
def command(host: str, port: int, data_dir: Path) -> None:
    """Run a server with live demo data until interrupted: learners lease sandboxes, devices send
    readings."""
    from sandyard.entrypoints.server.welcome import local_url

    signal.signal(signal.SIGTERM, _exit)
    data_dir.mkdir(parents=True, exist_ok=True)
    url = local_url(host, port)
    with _serving(host, port, data_dir, url):
        token = data_dir / "secrets" / "broker_admin_token"
        click.echo(f"The console: {url}/")
        click.echo(f"Log in as operator with the token in {token}:\n  {token.read_text().strip()}")
        _play(url, data_dir)


def _exit(number: int, _frame: object) -> None:
    """Like Ctrl-C: the server is stopped on the way out."""
    raise SystemExit(128 + number)


def _play(url: str, data_dir: Path) -> None:
    import random

    from sandyard_client import SandyardClientError

    from sandyard.entrypoints.cli.exit_codes import call_failed
    from sandyard.tools.demo import actors

    try:
        with actors(url, data_dir, random.Random()) as (classroom, fleet):  # noqa: S311 - a game
            fleet.begin()
            classroom.reserve()
            while True:
                classroom.pass_time()
                fleet.pass_time()
                time.sleep(_TICK_SEC)
    except SandyardClientError as error:
        raise call_failed(error) from error


@contextmanager
def _serving(host: str, port: int, data_dir: Path, url: str) -> Iterator[None]:
    """`sandyard serve` as a separate process, which logs to the data dir."""
    from sandyard.tools.demo import SETTINGS

    arguments = ("serve", "--host", host, "--port", str(port), "--data-dir", str(data_dir))
    with (data_dir / "demo.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "sandyard", *arguments],
            env=os.environ | SETTINGS,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for this process, which stops the server
        )
    try:
        _wait(process, url, data_dir)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _wait(process: "subprocess.Popen[bytes]", url: str, data_dir: Path) -> None:
    import httpx

    for _ in range(_START_SEC * 10):
        if process.poll() is not None:
            break
        try:
            if httpx.get(f"{url}/readyz", timeout=2).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise click.ClickException(
        f"The server did not start. The reason is in {data_dir / 'demo.log'}."
    )
