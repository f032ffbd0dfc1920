"""`python -m benchmarks [NAME…]`: run the measurements and print one table of them."""

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from benchmarks import (
    dynamo,
    e2b,
    expiry,
    gateway,
    http_ratio,
    open_loop,
    platform,
    postgres,
    previews,
    replicas,
    reservations,
    row_counts,
    sessions,
    start,
    telemetry_http,
    telemetry_rows,
)
from benchmarks.pools import LargePool
from benchmarks.report import Figure, Measured, Say, print_table, progress

Benchmark = Callable[[Path, LargePool, Say], Measured]

BENCHMARKS: Mapping[str, Benchmark] = {
    "http": lambda folder, _large, say: http_ratio.measure(folder, say),
    "open-loop": lambda folder, _large, say: open_loop.measure(folder, say),
    "open-loop-dynamodb": lambda folder, _large, say: open_loop.measure_dynamodb(folder, say),
    "rows": row_counts.measure,
    "expiry": expiry.measure,
    "start": lambda folder, _large, say: start.measure(folder, say),
    "postgres": lambda folder, _large, say: postgres.measure(folder, say),
    "dynamodb": lambda folder, _large, say: dynamo.measure(folder, say),
    "replicas": lambda _folder, _large, say: replicas.measure(say),
    "reservations": lambda folder, _large, say: reservations.measure(folder, say),
    "readings": lambda folder, _large, say: telemetry_http.measure(folder, say),
    "readings-rows": lambda folder, _large, say: telemetry_rows.measure(folder, say),
    "sandboxes": lambda folder, _large, say: platform.measure(folder, say),
    "sessions": lambda folder, _large, say: sessions.measure(folder, say),
    "starts": lambda folder, _large, say: sessions.measure_starts(folder, say),
    "gateway": lambda folder, _large, say: gateway.measure(folder, say),
    "e2b": lambda folder, _large, say: e2b.measure(folder, say),
    "previews": lambda folder, _large, say: previews.measure(folder, say),
}


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", type=click.Choice(list(BENCHMARKS)))
def main(names: Sequence[str]) -> None:
    """Measure Sandyard on this machine and print one table; without a NAME, everything.

    \b
    http           claims and /healthz over HTTP beside the bare frameworks (needs wrk)
    open-loop      latency of claims at 1,000 per second; open-loop-dynamodb: at 500
    rows           a claim in a pool of a million rows beside one of a thousand
    expiry         the expiry job in a pool of a million rows beside one of ten thousand
    start          from exec to ready, and what a server takes that nobody calls
    postgres       claims on PostgreSQL beside the same as a bare statement
    dynamodb       claims on DynamoDB beside the bare transaction, and by number of rows (needs wrk)
    replicas       how often replicas on DynamoDB reach for the same sandbox
    reservations   claims beside a reservation and 1,000 tickets, and without, on every engine
    readings       readings over HTTP beside the bare drivers, on every engine (needs wrk)
    readings-rows  latest and an hour of readings among a million beside among ten thousand
    sandboxes      from the start call to a page, and a list among 100,000 beside among 1,000
    sessions       commands in a sandbox, and files up and down, over HTTP
    starts         warm and cold starts of sandboxes, and what 200 idle ones take
    gateway        10 MB through the gateway beside nginx as a proxy (needs wrk and nginx)
    e2b            sandboxes, commands and files by E2B's API beside the Platform's own
    previews       status of 200 previews asked at once, with a double of E2B behind

    All servers are its own, listen on 127.0.0.1 and are stopped at the end. Files go to a
    temporary folder; TMPDIR chooses the disk. The exit code says whether everything ran, not
    whether a target was met.

    \b
    Examples:
      python -m benchmarks
      python -m benchmarks rows expiry
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    say = progress()
    load_before = os.getloadavg()[0]
    results: list[Measured] = []
    crashed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="sandyard-bench-") as name:
        large = LargePool(Path(name))
        for benchmark in [known for known in BENCHMARKS if not names or known in names]:
            folder = Path(name) / benchmark
            folder.mkdir()
            try:
                results.append(BENCHMARKS[benchmark](folder, large, say))
            except Exception:
                say(f"{benchmark} broke off:\n{traceback.format_exc()}")
                crashed.append(benchmark)
                results.append(Measured([Figure.not_measured(benchmark, "it broke off")]))
    say("")
    print_table(results, load_before=load_before)
    sys.exit(1 if crashed else 0)


if __name__ == "__main__":
    main()
