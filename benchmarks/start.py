"""What a start costs, `--help`, and a server that nobody calls."""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil

from benchmarks.report import Figure, Measured, Say
from sandyard.kit.free_ports import free_port

_ROUNDS = 5
_FRESH_SEC = 2
_EXISTING_SEC = 1
_HELP_SEC = 0.3
_IDLE_SEC = 20
_SETTLE_SEC = 5
_GIVE_UP_SEC = 30
_STOP_SEC = 20
_BETWEEN_LOOKS_SEC = 0.01
_COMMAND = Path(sys.executable).parent / "sandyard"


def measure(folder: Path, say: Say) -> Measured:
    fresh: list[float] = []
    existing: list[float] = []
    helped: list[float] = []
    for number in range(1, _ROUNDS + 1):
        say(f"start: round {number} of {_ROUNDS}")
        data_dir = folder / f"data-{number}"
        fresh.append(_start_and_stop(data_dir))
        existing.append(_start_and_stop(data_dir))
        helped.append(_help())
    say(f"start: {_IDLE_SEC} seconds of nothing")
    idle = _Idle()
    _start_and_stop(folder / "data-1", meanwhile=idle)
    return Measured(
        [
            Figure.below("start to ready, fresh data dir", median(fresh), _FRESH_SEC, "s"),
            Figure.below("start to ready, existing data dir", median(existing), _EXISTING_SEC, "s"),
            Figure.below("`sandyard --help`", median(helped), _HELP_SEC, "s"),
            Figure(
                "resident size of `serve` with all parts", f"{idle.resident_bytes / 1e6:.0f} MB"
            ),
            Figure("CPU of it when nobody calls", f"{idle.cpu_share:.2%} of a core"),
        ]
    )


class _Idle:
    """What a process takes that nobody asks for anything."""

    resident_bytes = 0
    cpu_share = 0.0

    def __call__(self, pid: int) -> None:
        time.sleep(_SETTLE_SEC)  # the jobs of the start come first
        process = psutil.Process(pid)
        before = process.cpu_times()
        time.sleep(_IDLE_SEC)
        after = process.cpu_times()
        used = after.user + after.system - before.user - before.system
        self.cpu_share = used / _IDLE_SEC
        self.resident_bytes = process.memory_info().rss


def _help() -> float:
    started = time.perf_counter()
    subprocess.run([_COMMAND, "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _start_and_stop(data_dir: Path, meanwhile: Callable[[int], None] = lambda _pid: None) -> float:
    port = free_port()
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    log_path = data_dir.with_suffix(".log")
    with log_path.open("ab") as log:
        started = time.perf_counter()
        process = subprocess.Popen(
            [_COMMAND, "serve", "--port", str(port), "--data-dir", data_dir],
            env=environment | {"DRAIN_SEC": "0"},
            stdout=log,
            stderr=log,
        )
    try:
        if not _becomes_ready(process, port):
            raise RuntimeError(f"`sandyard serve` did not become ready:\n{log_path.read_text()}")
        seconds = time.perf_counter() - started
        meanwhile(process.pid)
        return seconds
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
