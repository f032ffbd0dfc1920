"""Claims on DynamoDB: over HTTP beside the bare transaction, and in a large pool beside a small."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from aiodynamo.credentials import Key, StaticCredentials

from benchmarks.broker_server import port_of, require_only_new_leases
from benchmarks.dynamo_engine import (
    NAMES,
    Export,
    find_program,
    free_rows,
    open_pool,
    pool_engine,
    pool_server,
)
from benchmarks.load import CONNECTIONS, INSTALL_WRK, Slice, Target, has_wrk, measure_slice
from benchmarks.loops import run
from benchmarks.pools import LAB_SECONDS
from benchmarks.report import Figure, Measured, Say
from sandyard.broker.pool.model import Claim, Lease, Sandbox, Status
from sandyard.broker.pool.stores.dynamo_items import lease_item, sandbox_key
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.clock import SystemClock
from sandyard.kit.dynamo.client import Dynamo

_HTTP_ROWS = 15_000
_ROUNDS = 5
_SLICE_SEC = 2
_WARM_UP_SEC = 1
_LEAST = 0.75

_SMALL, _LARGE = 1_000, 100_000
_WARM_UPS = 50
_SAMPLES = 400
_MOST = 1.2

_READ_AHEAD = 15
_CLAIMS_PER_CALLER = 5

_RATIO = f"claims over HTTP ÷ bare transactions, DynamoDB, {CONNECTIONS} connections"
_CLAIMS = "  claims per second, and the server's CPU time for one"
_BARE = "  bare transactions, and the client's CPU time for one"


def measure(folder: Path, say: Say) -> Measured:
    program = find_program()
    if program is None:
        why = "no engine; `make test` installs it"
        return Measured([Figure.not_measured(_RATIO, why)])
    rows = f"dynamodb {_SMALL:,} and {_LARGE:,}"
    if has_wrk():
        figures = _measure_http(program, folder, say)
        rows = f"dynamodb {_HTTP_ROWS:,} over HTTP, {_SMALL:,} and {_LARGE:,}"
    else:
        say(f"{INSTALL_WRK}\n")  # it stays when the next line comes
        figures = [Figure.not_measured(line, "no wrk") for line in (_RATIO, _CLAIMS, _BARE)]
    return Measured([*figures, *_measure_rows(program, folder, say)], rows)


def _measure_http(program: Path, folder: Path, say: Say) -> list[Figure]:
    """Slices of both in turn, each on an engine of its own, because engines slow down with age."""
    export = Export.of(folder / "http-pool", _HTTP_ROWS)
    claims: list[Slice] = []
    bare: list[Slice] = []
    for number in range(1, _ROUNDS + 1):
        say(f"dynamodb: round {number} of {_ROUNDS}")
        with pool_engine(program, export) as url:
            bare.append(run(_bare_slice(url)))
        with pool_engine(program, export) as url:
            claims.append(_http_slice(url, folder / f"http-{number}"))
    ratios = [
        ours.per_second / theirs.per_second for ours, theirs in zip(claims, bare, strict=True)
    ]
    return [
        Figure.at_least(_RATIO, ratios, _LEAST),
        Figure(_CLAIMS, _describe(claims)),
        Figure(_BARE, _describe(bare)),
    ]


def _http_slice(engine_url: str, folder: Path) -> Slice:
    with pool_server(engine_url, folder) as server:
        target = Target(
            port_of(server), server.process.pid, "POST", "/v1/allocate", server.track_token
        )
        measure_slice(target, _WARM_UP_SEC, label="warm-up", folder=folder)
        measured = measure_slice(target, _SLICE_SEC, label="track", folder=folder)
        require_only_new_leases(server)
    return measured


async def _bare_slice(engine_url: str) -> Slice:
    """As many transactions in flight as the server has connections, on rows known beforehand."""
    pool = open_pool(engine_url)
    transactions = iter([_bare_claim(pool, row) for row in free_rows(_HTTP_ROWS)])
    try:
        await _send_for(_WARM_UP_SEC, pool.table.engine, transactions)
        return await _send_for(_SLICE_SEC, pool.table.engine, transactions)
    finally:
        await pool.table.engine.close()


async def _send_for(
    seconds: float, engine: Dynamo, transactions: Iterator[Mapping[str, Any]]
) -> Slice:
    started, cpu_before = time.perf_counter(), time.process_time()
    done = 0

    async def send() -> None:
        nonlocal done
        while time.perf_counter() - started < seconds:
            transaction = next(transactions, None)
            if transaction is None:
                raise RuntimeError(f"{_HTTP_ROWS:,} rows are too few for this machine")
            await engine.call("TransactWriteItems", transaction)
            done += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(send())
    return Slice(
        per_second=done / (time.perf_counter() - started),
        cpu_usec=(time.process_time() - cpu_before) / done * 1e6,
    )


def _bare_claim(pool: PoolTable, row: Sandbox) -> Mapping[str, Any]:
    """What the store writes for a claim: the row is taken if free, the lease put if there is none.

    It is written out here, so that a store that writes more for a claim is seen to be slower: the
    event is such a thing.
    """
    now, track = int(time.time()), f"track-{row.external_id}"
    lease = Lease(row.sandbox_id, row.name, row.external_id, now, now + LAB_SECONDS)
    take = pool.table.update_action(
        sandbox_key(row.sandbox_id),
        "SET #status = :allocated, allocated_to_track = :track, idempotency_key = :key, "
        "allocated_at = :now, updated_at = :now",
        {
            "allocated": Status.ALLOCATED,
            "available": Status.AVAILABLE,
            "track": track,
            "key": track,
            "now": now,
        },
        condition="#status = :available",
    )
    put = pool.table.put_action(
        lease_item(track, track, lease) | {"write_id": row.sandbox_id.replace("-", "")},
        condition="attribute_not_exists(PK)",
    )
    return {"TransactItems": [take, put]}


def _measure_rows(program: Path, folder: Path, say: Say) -> list[Figure]:
    say(f"dynamodb: filling pools of {_SMALL:,} and {_LARGE:,} rows")
    with ExitStack() as stack:
        urls = [
            stack.enter_context(pool_engine(program, Export.of(folder / f"pool-{rows}", rows)))
            for rows in (_SMALL, _LARGE)
        ]
        say(f"dynamodb: {_SAMPLES} claims in each pool, in turn")
        return run(_compare(*urls))


async def _compare(small_url: str, large_url: str) -> list[Figure]:
    engines = [_CountingDynamo(url) for url in (small_url, large_url)]
    stores = [
        DynamoPoolStore(PoolTable(engine, NAMES), clock=SystemClock(), prefetch_size=_READ_AHEAD)
        for engine in engines
    ]
    try:
        samples: list[list[float]] = [[], []]
        for number in range(_WARM_UPS + _SAMPLES):
            for store, times in zip(stores, samples, strict=True):
                times.append(await _claim(store, f"rows-{number}"))
        one_by_one = engines[1].calls / len(samples[1])
        small, large = (median(times[_WARM_UPS:]) for times in samples)
        at_once = await _calls_at_once(engines[1], stores[1])
    finally:
        for store in stores:
            await store.close()
    return [
        Figure.at_most(
            f"one claim with {_LARGE:,} rows ÷ with {_SMALL:,}, DynamoDB", large / small, _MOST
        ),
        Figure(f"  with {_LARGE:,} rows", f"{large * 1000:.2f} ms"),
        Figure(f"  with {_SMALL:,} rows", f"{small * 1000:.2f} ms"),
        Figure("calls to DynamoDB per claim, one claim after another", f"{one_by_one:.2f}"),
        Figure(f"  with {CONNECTIONS} callers", f"{at_once:.2f}"),
    ]


async def _calls_at_once(engine: "_CountingDynamo", store: DynamoPoolStore) -> float:
    before = engine.calls

    async def call(caller: int) -> None:
        for number in range(_CLAIMS_PER_CALLER):
            await _claim(store, f"caller-{caller}-{number}")

    async with asyncio.TaskGroup() as group:
        for caller in range(CONNECTIONS):
            group.create_task(call(caller))
    return (engine.calls - before) / (CONNECTIONS * _CLAIMS_PER_CALLER)


async def _claim(store: DynamoPoolStore, name: str) -> float:
    started = time.perf_counter()
    claimed = await store.claim(Claim(track_id=name, key=name, now=int(time.time())))
    seconds = time.perf_counter() - started
    if claimed is None or not claimed.is_new:
        raise RuntimeError("a claim was not given a sandbox of its own")
    return seconds


class _CountingDynamo(Dynamo):
    def __init__(self, endpoint_url: str) -> None:
        super().__init__(
            region="us-east-1",
            endpoint_url=endpoint_url,
            credentials=StaticCredentials(Key("local", "local")),
        )
        self.calls = 0

    async def call(self, action: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        self.calls += 1
        return await super().call(action, payload)


def _describe(slices: Sequence[Slice]) -> str:
    per_second = median(each.per_second for each in slices)
    cpu_usec = median(each.cpu_usec for each in slices)
    return f"{per_second:,.0f}/s, {cpu_usec:.0f} µs"
