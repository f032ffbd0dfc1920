"""DynamoDB-compatible engines in memory that begin with a pool of free rows."""

import asyncio
import gzip
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
from aiodynamo.credentials import Key, StaticCredentials

from benchmarks.loops import run
from benchmarks.pools import LAB_HOURS
from sandyard.broker.pool.model import Listed, Sandbox
from sandyard.broker.pool.provider_model import decide_discovery
from sandyard.broker.pool.stores.dynamo_items import sandbox_item
from sandyard.broker.stores.dynamo_table import (
    LAYOUT,
    PoolTable,
    TableNames,
    definition,
)
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.dynamo.client import Dynamo
from sandyard.kit.dynamo.event_items import event_table_definition
from sandyard.kit.dynamo.job_leases import DynamoJobLeases
from sandyard.kit.dynamo.tables import create_table
from sandyard.kit.dynamo.values import wire
from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import ServerProcess, csp_simulator, sandyard_serve
from tests.support.storage.engines import AWS_ENVIRONMENT

_START_SEC = 90
_FIRST_SYNC_SEC = 60
NAMES = TableNames()


@contextmanager
def pool_server(engine_url: str, folder: Path) -> Iterator[ServerProcess]:
    """A server on this engine, once its first sync has read the pool.

    Its provider lists none of the rows; sync finds that suspicious and leaves them alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with csp_simulator(folder) as provider:
        environment = AWS_ENVIRONMENT | {
            "POOL_STORE": "dynamodb",
            "DDB_ENDPOINT_URL": engine_url,
            "CSP_BASE_URL": provider,
        }
        with sandyard_serve(folder / "data", environment=environment) as server:
            run(_until_synced(engine_url))
            yield server


async def _never_finished(leases: DynamoJobLeases, job: str) -> bool:
    runs = await leases.runs([job])
    return job not in runs or runs[job].finished_at is None


async def _until_synced(engine_url: str) -> None:
    pool = open_pool(engine_url)
    leases = DynamoJobLeases(pool.table)
    try:
        async with asyncio.timeout(_FIRST_SYNC_SEC):
            while await _never_finished(leases, "sync"):  # noqa: ASYNC110 - the event is in the engine
                await asyncio.sleep(0.1)
    finally:
        await pool.table.engine.close()


def open_pool(engine_url: str) -> PoolTable:
    credentials = StaticCredentials(Key("local", "local"))
    engine = Dynamo(region="us-east-1", endpoint_url=engine_url, credentials=credentials)
    return PoolTable(engine, NAMES)


async def _create_events(engine_url: str) -> None:
    pool = open_pool(engine_url)
    try:
        await create_table(pool.table.engine, event_table_definition(pool.names.events), ttl=None)
    finally:
        await pool.table.engine.close()


@dataclass(frozen=True, slots=True)
class Export:
    """A pool of free rows as DynamoDB exports tables, which an engine loads faster than writes."""

    folder: Path
    schema: Path

    @classmethod
    def of(cls, folder: Path, rows: int) -> "Export":
        data = folder / NAMES.table / "data"
        data.mkdir(parents=True)
        schema = folder / "schema.json"
        schema.write_bytes(orjson.dumps({"Table": definition(NAMES)}))
        with gzip.open(data / "rows.json.gz", "wb", compresslevel=1) as file:
            file.write(_line(LAYOUT))
            file.writelines(_line(sandbox_item(row)) for row in free_rows(rows))
        return cls(folder, schema)


def _line(item: dict[str, Any]) -> bytes:
    return orjson.dumps({"Item": wire(item)}) + b"\n"


def free_rows(rows: int) -> Iterator[Sandbox]:
    now = int(time.time())
    for number in range(1, rows + 1):
        listed = Listed(external_id=f"ext-{number}", name=f"sandbox-{number:07d}")
        cause = Cause(actor("job", "sync"), now * 1000)
        yield decide_discovery(listed, lab_duration_hours=LAB_HOURS, cause=cause).result


def find_program() -> Path | None:
    tools = Path(__file__).parents[1] / ".tools"
    return next(tools.glob("node_modules/@dynoxide/*/dynoxide"), None)


@contextmanager
def pool_engine(program: Path, export: Export) -> Iterator[str]:
    """A DynamoDB-compatible engine in memory that begins with the export's rows; gives its URL."""
    port = free_port()
    source = ["--source", str(export.folder), "--schema", str(export.schema)]
    process = subprocess.Popen(
        [program, "import", *source, "--serve", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_it_answers(process, url)
        run(_create_events(url))
        yield url
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _START_SEC
    while time.monotonic() < deadline and process.poll() is None:
        try:
            httpx.get(url, timeout=2)
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the engine did not start")
