"""Several processes on one port, over a shared engine."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

from sandyard.bootstrap.registry import embedded_parts, selected_parts
from sandyard.entrypoints.server import serve
from sandyard.entrypoints.server.data_dir import require_writable, with_secrets
from sandyard.entrypoints.server.lifecycle import warn_of_missing
from sandyard.entrypoints.server.options import ServeOptions
from sandyard.entrypoints.server.previous_engines import require_data_here
from sandyard.entrypoints.server.renewal import Terminal
from sandyard.kit.errors import UnavailableError
from sandyard.settings import Settings, SettingsError

logger = logging.getLogger(__name__)

_RESTART_WAIT_SEC = 1.0
_EXIT_SEC = 15.0


def run_workers(settings: Settings, options: ServeOptions, count: int) -> None:
    """Keep `count` workers alive until SIGTERM, then wait until each has finished its requests."""
    if embedded_parts(settings):
        raise SettingsError("DATABASE_URL: must be set for --workers; SQLite supports one process")
    reasons = [part.one_process(settings) for part in selected_parts(settings)]
    if any(reasons):
        raise SettingsError("\n".join(filter(None, reasons)))
    require_writable(options.data_dir)
    serve.with_addresses(with_secrets(settings, options.data_dir), options)
    asyncio.run(require_data_here(settings, options.data_dir, start_empty=options.start_empty))
    asyncio.run(_check_settings(settings, options.data_dir))
    serve.warn_of_close_variables()
    serve.require_free_ports(settings, options)
    warn_of_missing(settings, selected_parts(settings))
    _keep_workers(options, count)


def _keep_workers(options: ServeOptions, count: int) -> None:
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    workers: list[subprocess.Popen[bytes]] = []
    terminal = Terminal()

    def hang_up(_number: int, _frame: FrameType | None) -> None:
        if terminal.is_closed():
            stopping.set()
        for worker in workers:  # each rereads its secrets and the certificate
            worker.send_signal(signal.SIGHUP)

    signal.signal(signal.SIGHUP, hang_up)
    with tempfile.TemporaryDirectory(prefix="sandyard-metrics-") as metrics_dir:
        workers += [_start(options, Path(metrics_dir)) for _ in range(count)]
        while not stopping.wait(0.2):
            for index, worker in enumerate(workers):
                if worker.poll() is not None:
                    logger.error("worker ended", extra={"exit_code": worker.returncode})
                    time.sleep(_RESTART_WAIT_SEC)
                    workers[index] = _start(options, Path(metrics_dir))
        _stop_all(workers)


async def _check_settings(settings: Settings, data_dir: Path) -> None:
    """Once for all workers; an unavailable engine may come back, and its jobs then check again."""
    for part in selected_parts(settings):
        if part.check_settings is not None:
            with suppress(UnavailableError):
                await part.check_settings(settings, data_dir)


def _start(options: ServeOptions, metrics_dir: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sandyard", "serve", "--worker-of", str(os.getpid())]
    command += ["--host", options.host, "--port", str(options.port)]
    command += ["--data-dir", str(options.data_dir)]
    if options.tls is not None:
        command += ["--tls-cert", str(options.tls.certificate), "--tls-key", str(options.tls.key)]
        command += ["--hsts-sec", str(options.tls.hsts_sec)]
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(metrics_dir)}
    return subprocess.Popen(command, env=environment)  # noqa: S603 - our own command


def _stop_all(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + _EXIT_SEC
    for worker in workers:
        try:
            worker.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
