"""Seconds from the exec of `sandyard serve` to its first ready answer."""

import http.client
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.report import Figure, Measured, Say
from sandyard.entrypoints.server import free_port

_ROUNDS = 5
_LIMIT_SEC = 2
_GIVE_UP_SEC = 30
_STOP_SEC = 20
_BETWEEN_LOOKS_SEC = 0.01


def measure(folder: Path, say: Say) -> Measured:
    fresh: list[float] = []
    existing: list[float] = []
    for number in range(1, _ROUNDS + 1):
        say(f"start: round {number} of {_ROUNDS}")
        data_dir = folder / f"data-{number}"
        fresh.append(_start_and_stop(data_dir))
        existing.append(_start_and_stop(data_dir))
    return Measured(
        [
            Figure.below("start to ready, fresh data dir", median(fresh), _LIMIT_SEC, "s"),
            Figure.below("start to ready, existing data dir", median(existing), _LIMIT_SEC, "s"),
        ]
    )


def _start_and_stop(data_dir: Path) -> float:
    port = free_port()
    command = Path(sys.executable).parent / "sandyard"
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    log_path = data_dir.with_suffix(".log")
    with log_path.open("ab") as log:
        started = time.perf_counter()
        process = subprocess.Popen(
            [command, "serve", "--port", str(port), "--data-dir", data_dir],
            env=environment | {"DRAIN_SEC": "0"},
            stdout=log,
            stderr=log,
        )
    try:
        if not _becomes_ready(process, port):
            raise RuntimeError(f"`sandyard serve` did not become ready:\n{log_path.read_text()}")
        return time.perf_counter() - started
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SEC)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _becomes_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + _GIVE_UP_SEC
    while time.monotonic() < deadline and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return True
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(_BETWEEN_LOOKS_SEC)
    return False
