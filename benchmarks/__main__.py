"""`python -m benchmarks [NAME…]`: run the measurements and print one table of them."""

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import click

from benchmarks.pools import LargePool
from benchmarks.report import Figure, Measured, Say, print_table, progress, show_figures

BENCHMARKS: Mapping[str, str] = {
    "http": "http_ratio:measure",
    "start": "start:measure",
    "postgres": "postgres:measure",
    "open-loop": "open_loop:measure",
    "previews": "previews:measure",
    "preview-troubles": "preview_troubles:measure",
    "preview-columns": "preview_columns:measure",
    "project": "project_files:measure",
    "preview-applications": "preview_applications:measure",
    "readings": "telemetry_http:measure",
    "replicas": "replicas:measure",
    "open-loop-dynamodb": "open_loop:measure_dynamodb",
    "tracing": "tracing:measure",
    "rows": "row_counts:measure",
    "expiry": "expiry:measure",
    "dynamodb": "dynamo:measure",
    "reservations": "reservations:measure",
    "moves": "moves:measure",
    "readings-rows": "telemetry_rows:measure",
    "sandboxes": "platform:measure",
    "sessions": "sessions:measure",
    "starts": "sessions:measure_starts",
    "isolations": "isolations:measure",
    "store": "store:measure",
    "images": "images:measure",
    "gateway": "gateway:measure",
    "network": "network:measure",
    "secrets": "secrets:measure",
    "hop": "bulkhead:measure",
    "e2b": "e2b:measure",
    "kubernetes": "kubernetes:measure",
    "fleet": "fleet:measure",
    "console": "console:measure",
    "mcp": "mcp:measure",
    "ssh": "ssh:measure",
}
"""What measures each, imported when its turn has come: one that can't be loses no others."""
_WITH_LARGE_POOL = ("rows", "expiry")

_AGAIN_SEC = 30
"""After this it is broken off once more, if something took the first time for its own."""


class TooLongError(Exception):
    """A benchmark took longer than it may."""


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", type=click.Choice(list(BENCHMARKS)))
@click.option("--limit", "limit_sec", default=200, show_default=True, help="Seconds for each.")
@click.option("--total", "total_sec", default=1000, show_default=True, help="Seconds for all.")
def main(names: Sequence[str], limit_sec: int, total_sec: int) -> None:
    """Measure Sandyard on this machine and print one table; without a NAME, everything.

    \b
    http           claims and /healthz over HTTP beside the bare frameworks (needs wrk)
    tracing        CPU time of a claim with traces to a collector beside without (needs wrk)
    open-loop      latency of claims at 1,000 per second; open-loop-dynamodb: at 500
    rows           a claim in a pool of a million rows beside one of a thousand
    expiry         the expiry job in a pool of a million rows beside one of ten thousand
    start          from exec to ready, and what a server takes that nobody calls
    postgres       claims on PostgreSQL beside the same as a bare statement
    dynamodb       claims on DynamoDB beside the bare transaction, and by number of rows (needs wrk)
    replicas       how often replicas on DynamoDB reach for the same sandbox
    reservations   claims beside a reservation and 1,000 tickets, and without, on every engine
    moves          the move of 100,000 records (MOVED_RECORDS) between the engines, and its check
    readings       readings over HTTP beside the bare drivers, on every engine (needs wrk)
    readings-rows  latest and an hour of readings among a million beside among ten thousand
    sandboxes      from the start call to a page, and a list among 100,000 beside among 1,000
    sessions       commands in a sandbox, and files up and down, over HTTP
    starts         warm and cold starts of sandboxes, and what 40 idle ones take
    isolations     starts, commands, files, CPU, memory kept and forks: bubblewrap beside gVisor
    store          100 MB into the store of files and back, beside plain copies
    images         the pull of an image of 300 MB and its first start, beside curl and tar
    gateway        10 MB through the gateway beside nginx as a proxy (needs wrk and nginx)
    network        100 MB into a sandbox, directly beside through the port of its proxy
    secrets        requests with a secret that the proxy puts in, beside those it passes on
    kubernetes     commands in a Pod and files of it over TLS, and what a start adds
    hop            requests through the main process beside a port of their own
    e2b            sandboxes, commands and files by E2B's API beside the Platform's own
    previews       status of 200 previews asked at once, with a double of E2B behind
    preview-troubles  their status while E2B is slow, limits the rate, is away, cut off, or late
    preview-columns  `sandbox_info` as JSONB beside the same in columns, on PostgreSQL
    project        a project of 5,000 files: from one changed file to the byte served
    preview-applications  a Vite project: first preview, next one, an edit until a browser shows it
    console        every screen of a large site, and what 200 open consoles cost
    ssh            a command by SSH and scp beside those of sshd
    mcp            a command by the tool of an agent beside the same by the API

    All servers are its own, listen on 127.0.0.1 and are stopped at the end. Files go to a
    temporary folder; TMPDIR chooses the disk. A benchmark that fails, or takes longer than
    --limit, is told of in the table, and the others go on, in this order, as long as --total
    lasts. Each one's figures are also shown as soon as they are there. The exit code says whether
    everything ran, not whether a target was met.

    \b
    Examples:
      python -m benchmarks
      python -m benchmarks rows expiry
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    signal.signal(signal.SIGALRM, _break_off)
    say = progress()
    load_before, ends_at = os.getloadavg()[0], time.monotonic() + total_sec
    results: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="sandyard-bench-") as name:
        large = LargePool(Path(name))
        for benchmark in [known for known in BENCHMARKS if not names or known in names]:
            folder = Path(name) / benchmark
            folder.mkdir()
            left_sec = min(limit_sec, ends_at - time.monotonic())
            results.append(_measured(benchmark, folder, large, say, left_sec))
            show_figures(results[-1], say)
    say("")
    print_table(results, load_before=load_before)
    sys.exit(1 if any(result.is_broken_off for result in results) else 0)


def _measured(
    benchmark: str, folder: Path, large: LargePool, say: Say, limit_sec: float
) -> Measured:
    """What it measured, or that it broke off: the results of the others are not lost."""
    if limit_sec <= 0:
        why = "the time was up"
        return Measured([Figure.not_measured(benchmark, why)], is_broken_off=True)
    load, begun = os.getloadavg()[0], time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, limit_sec, _AGAIN_SEC)
    try:
        measured = _run(benchmark, folder, large, say)
    except Exception as error:
        say(f"{benchmark} broke off:\n{traceback.format_exc()}")
        why = f"it broke off: {type(error).__name__}"
        measured = Measured([Figure.not_measured(benchmark, why)], is_broken_off=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    say(f"{benchmark}: took {time.monotonic() - begun:.0f} s\n")
    return replace(measured, load=load)


def _run(benchmark: str, folder: Path, large: LargePool, say: Say) -> Measured:
    module, _, name = BENCHMARKS[benchmark].partition(":")
    measure = getattr(import_module(f"benchmarks.{module}"), name)
    pools = (large,) if benchmark in _WITH_LARGE_POOL else ()
    measured: Measured = measure(folder, *pools, say)
    return measured


def _break_off(*_: object) -> None:
    raise TooLongError


if __name__ == "__main__":
    main()
