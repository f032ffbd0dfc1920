"""`sandyard serve`."""

import gc
from pathlib import Path

import click

from sandyard.entrypoints.cli.options import data_dir_option

_EPILOG = """\b
Examples:
  sandyard serve
  sandyard serve --host 0.0.0.0 --port 9000 --data-dir /var/lib/sandyard
  DATABASE_URL=postgresql://… BROKER_API_TOKEN=… BROKER_ADMIN_TOKEN=… sandyard serve --workers 4
"""


@click.command("serve", epilog=_EPILOG)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8080, show_default=True, type=click.IntRange(1, 65535), help="Port."
)
@data_dir_option("Directory of the embedded databases and the generated tokens.")
@click.option(
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    help="Processes on this port; more than one needs DATABASE_URL.",
)
@click.option("--worker-of", type=int, hidden=True)
def command(host: str, port: int, data_dir: Path, workers: int, worker_of: int | None) -> None:
    """Serve the API and run the jobs, until SIGTERM."""
    gc.disable()  # until all is there that stays: looking through it again and again takes time
    from sandyard.entrypoints import serve
    from sandyard.kit.log import configure_logging
    from sandyard.settings import load_settings

    settings = load_settings()
    configure_logging(settings.server.log_level, settings.server.log_format)
    options = serve.ServeOptions(host, port, data_dir.resolve(), worker_of)
    if workers > 1:
        from sandyard.entrypoints.workers import run_workers

        gc.enable()
        run_workers(settings, options, workers)
    else:
        serve.run(settings, options)
