"""`sandyard serve`."""

import gc
import sys
from pathlib import Path

import click

from sandyard.entrypoints.cli.options import data_dir_option

_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
_UNUSED = "httpx._main"
"""An optional module of a dependency, for its command line, slow to import."""
_EPILOG = """\b
Examples:
  sandyard serve
  sandyard serve --host 0.0.0.0 --port 9000 --data-dir /var/lib/sandyard
  DATABASE_URL=postgresql://… BROKER_API_TOKEN=… BROKER_ADMIN_TOKEN=… sandyard serve --workers 4
"""


@click.command("serve", epilog=_EPILOG)
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", default=8080, type=click.IntRange(1, 65535), help="Port.")
@data_dir_option("Directory of the embedded databases and the generated tokens.")
@click.option(
    "--workers",
    default=1,
    type=click.IntRange(1, 64),
    help="Number of processes; more than one needs DATABASE_URL.",
)
@click.option(
    "--tls-cert",
    type=_FILE,
    help="Serve HTTPS with this certificate chain (PEM, also for *.SANDBOX_DOMAIN).",
)
@click.option("--tls-key", type=_FILE, help="The certificate's key in PEM.")
@click.option(
    "--hsts-sec",
    default=0,
    type=click.IntRange(min=0),
    help="With --tls-cert: seconds for which browsers use only HTTPS (HSTS).",
)
@click.option(
    "--start-empty",
    is_flag=True,
    help="Serve an engine without data although another one that is configured still has some.",
)
@click.option("--worker-of", type=int, hidden=True)
def command(
    host: str,
    port: int,
    data_dir: Path,
    workers: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    hsts_sec: int,
    start_empty: bool,
    worker_of: int | None,
) -> None:
    """Serve the API and run the jobs, until SIGTERM."""
    gc.disable()  # until startup is complete: repeated collections would cost time
    sys.modules.setdefault(_UNUSED, None)  # type: ignore[arg-type] # fails as if not installed
    from sandyard.entrypoints.server import serve
    from sandyard.entrypoints.server.listeners import Tls
    from sandyard.entrypoints.server.options import ServeOptions
    from sandyard.kit.observability.log import configure_logging
    from sandyard.settings import load_settings

    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key must be used together.")
    settings = load_settings()
    configure_logging(settings.server.log_level, settings.server.log_format)
    tls = None if tls_cert is None or tls_key is None else Tls(tls_cert, tls_key, hsts_sec)
    if tls is not None:
        tls.require_usable()
    if tls is None and hsts_sec:
        raise click.UsageError("--hsts-sec needs --tls-cert: browsers only obey it over HTTPS.")
    options = ServeOptions(host, port, data_dir.resolve(), worker_of, tls, start_empty)
    if workers > 1:
        from sandyard.entrypoints.server.workers import run_workers

        gc.enable()
        run_workers(settings, options, workers)
    else:
        raise click.exceptions.Exit(serve.run(settings, options))
