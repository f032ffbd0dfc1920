"""Latency of claims over HTTP at a fixed offered rate, on SQLite and on DynamoDB."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import open_loop_client
from benchmarks.broker_server import ROWS, filled_server, port_of, require_only_new_leases
from benchmarks.dynamo_engine import Export, find_program, pool_engine, pool_server
from benchmarks.open_loop_client import Offer, Outcome
from benchmarks.report import Figure, Measured, Say
from tests.support.servers.processes import ServerProcess

_RATE = 1_000
_RUNS = 3
_P99_MS = 25
_MEAN_MS = 5
_DYNAMO_RATE = 500
_DYNAMO_ROWS = 20_000
_DYNAMO_P99_MS = 100
_SECONDS = 30
_WARM_UP_SEC = 2
_TRACKS = 1_000
_CONNECTIONS = 128


def measure(folder: Path, say: Say) -> Measured:
    say("open-loop: filling the pool and starting the server")
    with filled_server(folder) as server:
        outcomes = _offer_runs(server, _RATE, _RUNS, say)
    what = f"claim over HTTP, SQLite, {_RATE:,}/s offered for {_SECONDS} s, best of {_RUNS}"
    best = min(outcomes, key=lambda outcome: outcome.p99_ms)
    figures = [
        Figure.below(f"{what}: p99", best.p99_ms, _P99_MS, "ms"),
        Figure.below(f"{what}: mean", best.mean_ms, _MEAN_MS, "ms"),
        Figure("  p99 of each", ", ".join(f"{each.p99_ms:.1f}" for each in outcomes)),
        Figure("  mean of each", ", ".join(f"{each.mean_ms:.1f}" for each in outcomes)),
    ]
    return Measured(figures, f"open-loop {ROWS:,}")


def measure_dynamodb(folder: Path, say: Say) -> Measured:
    what = f"claim over HTTP, DynamoDB, {_DYNAMO_RATE}/s offered for {_SECONDS} s: p99"
    program = find_program()
    if program is None:
        return Measured([Figure.not_measured(what, "no engine; `make test` installs it")])
    say("open-loop: filling DynamoDB and starting the server")
    export = Export.of(folder / "pool", _DYNAMO_ROWS)
    with pool_engine(program, export) as url, pool_server(url, folder / "server") as server:
        [outcome] = _offer_runs(server, _DYNAMO_RATE, 1, say)
    figures = [
        Figure.below(what, outcome.p99_ms, _DYNAMO_P99_MS, "ms"),
        Figure("  mean", f"{outcome.mean_ms:.1f} ms"),
    ]
    return Measured(figures, f"open-loop-dynamodb {_DYNAMO_ROWS:,}")


def _offer_runs(server: ServerProcess, rate: int, runs: int, say: Say) -> Sequence[Outcome]:
    """Raises RuntimeError unless each claim was given a sandbox of its own."""
    _offer(server, "warm-up", rate, seconds=_WARM_UP_SEC)
    outcomes = []
    for number in range(1, runs + 1):
        say(f"open-loop: {rate:,} claims per second for {_SECONDS} seconds, {number} of {runs}")
        outcomes.append(_offer(server, f"run-{number}", rate, seconds=_SECONDS))
    require_only_new_leases(server)
    return outcomes


def _offer(server: ServerProcess, label: str, rate: int, *, seconds: int) -> Outcome:
    offer = Offer(
        port=port_of(server),
        token=server.track_token,
        label=label,
        rate=rate,
        count=rate * seconds,
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
    outcome = Outcome(**json.loads(answer.stdout))
    if outcome.statuses != {"201": offer.count}:
        raise RuntimeError(f"answers were not all 201: {outcome.statuses}")
    return outcome
