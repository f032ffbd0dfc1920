"""Latency of claims over HTTP at a fixed offered rate."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks import open_loop_client
from benchmarks.broker_server import ROWS, filled_server, port_of, require_only_new_leases
from benchmarks.open_loop_client import Offer, Outcome
from benchmarks.report import Figure, Measured, Say
from tests.servers import ServerProcess

_RATE = 1_000
_SECONDS = 10
_TRACKS = 1_000
_CONNECTIONS = 128
_P99_MS = 50
_MEAN_MS = 10


def measure(folder: Path, say: Say) -> Measured:
    say("open-loop: filling the pool and starting the server")
    with filled_server(folder) as server:
        _offer(server, "warm-up", seconds=1)
        say(f"open-loop: {_RATE:,} claims per second for {_SECONDS} seconds")
        outcome = _offer(server, "track", seconds=_SECONDS)
        require_only_new_leases(server)
    is_valid = outcome.statuses == {"201": _RATE * _SECONDS}
    what = f"claim over HTTP, SQLite, {_RATE:,}/s offered for {_SECONDS} s"
    figures = [
        Figure.below(f"{what}: p99", outcome.p99_ms, _P99_MS, "ms", is_valid=is_valid),
        Figure.below(f"{what}: mean", outcome.mean_ms, _MEAN_MS, "ms", is_valid=is_valid),
    ]
    if not is_valid:
        figures.append(Figure("  answers were not all 201", str(outcome.statuses)))
    return Measured(figures, f"open-loop {ROWS:,}")


def _offer(server: ServerProcess, label: str, *, seconds: int) -> Outcome:
    offer = Offer(
        port=port_of(server),
        token=server.track_token,
        label=label,
        rate=_RATE,
        count=_RATE * seconds,
        tracks=_TRACKS,
        connections=_CONNECTIONS,
    )
    answer = subprocess.run(
        [sys.executable, "-m", open_loop_client.__name__],
        input=json.dumps(asdict(offer)),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=seconds + 60,
    )
    return Outcome(**json.loads(answer.stdout))
