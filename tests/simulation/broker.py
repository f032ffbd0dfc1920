"""Replicas of the Broker in one process: the real application, services, jobs and store adapter,
over a simulated engine and cloud."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, cast

import orjson
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.provider.client import HttpProvider
from sandyard.broker.stores.sql import MIGRATIONS
from sandyard.broker.wiring.part import BrokerPart
from sandyard.broker.wiring.pool import Pool, sql_pool
from sandyard.broker.wiring.provider import ProviderAddress
from sandyard.entrypoints.http.api import create_app
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.entrypoints.server.schedule import Schedule as Jobs
from sandyard.kit.circuits import CircuitState
from sandyard.kit.clock import Clock
from sandyard.settings import Settings
from tests.fakes.pool.state import PoolState
from tests.fakes.pool.store import HeldJob, MemoryCircuits, MemoryJobLeases, MemoryPoolStore
from tests.faults.callers import Operation, Send
from tests.simulation.cloud import Cloud, SimulatedProvider
from tests.simulation.engine import SharedSqlite, SqlEngine
from tests.simulation.loop import Process, SkewedClock
from tests.simulation.network import Network, unavailable
from tests.simulation.schedule import Schedule

T = TypeVar("T")

_TRY_SEC = 10.0
"""How long a caller waits for an answer."""
SKEW_SEC = 0.4


@dataclass(slots=True)
class World:
    """What all replicas share; the schedule's seed decides everything that happens in it."""

    schedule: Schedule
    settings: Settings
    engine: "Engine"
    cloud: Cloud = field(default_factory=Cloud)
    to_engine: Network = field(init=False)
    to_cloud: Network = field(init=False)

    def __post_init__(self) -> None:
        self.to_engine = Network(random.Random(f"{self.schedule.seed}:engine"))
        self.to_cloud = Network(random.Random(f"{self.schedule.seed}:cloud"))

    def store(self) -> PoolStore:
        """Past all faults."""
        past_faults = Network(random.Random(0))
        clock = SkewedClock(asyncio.get_running_loop())
        return self.engine.pool(past_faults, Process(), clock).store


class SimulatedReplica:
    """Dies at any await, and comes back without its memory."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        rng = random.Random(f"{world.schedule.seed}:replica {number}")
        skew = SKEW_SEC if world.schedule.has("skew") else 0.0
        self._clock = SkewedClock(asyncio.get_running_loop(), rng.uniform(-skew, skew))
        self.process = Process()
        self.process.is_dead = True
        self._app: Any = None

    async def start(self) -> None:
        self.process = Process()
        with self.process.current():
            part = _wired(self._world, self.process, self._clock)
            registry = CollectorRegistry()
            self._app = create_app(
                self._world.settings, [part], registry=registry, in_flight=InFlight()
            )
            await part.start()
            Jobs([(part.runner, job) for job in part.schedule]).start()

    async def kill(self) -> None:
        await self.process.kill()

    async def call(self, operation: Operation) -> tuple[int | None, bytes]:
        """Status and body; no status if it died meanwhile, or took too long."""
        if self.process.is_dead:
            await asyncio.sleep(0.05)
            return None, b""
        exchange = _Exchange(operation, self._clock.now())
        task = self.process.start(self._app(exchange.scope, exchange.receive, exchange.send))
        await asyncio.wait([task], timeout=_TRY_SEC)
        exchange.is_over.set()
        if not task.done():
            return None, b""
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        return exchange.status, exchange.body


class _Exchange:
    """One request of a caller, who stays connected until it has the answer or gives up."""

    def __init__(self, operation: Operation, now: float) -> None:
        sent = operation.body(now)
        self._body = b"" if sent is None else orjson.dumps(sent)
        headers = {**operation.headers, "Host": "test", "Content-Length": str(len(self._body))}
        if sent is not None:
            headers["Content-Type"] = "application/json"
        self.scope = _scope(operation, headers)
        self.status: int | None = None
        self.body = b""
        self.is_over = asyncio.Event()
        self._is_sent = False

    async def receive(self) -> dict[str, Any]:
        if not self._is_sent:
            self._is_sent = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.is_over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.body += message.get("body", b"")


def _scope(operation: Operation, headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": operation.method,
        "scheme": "http",
        "path": operation.path,
        "raw_path": operation.path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("192.0.2.1", 40000),
        "server": ("192.0.2.2", 8080),
        "state": {},
    }


def _wired(world: World, process: Process, clock: Clock) -> BrokerPart:
    provider = SimulatedProvider(world.cloud, world.to_cloud, process)
    return BrokerPart(
        world.settings,
        pool=world.engine.pool(world.to_engine, process, clock),
        provider=cast("HttpProvider", provider),
        provider_address=ProviderAddress("http://cloud.invalid", "", "the simulated cloud"),
        metrics=BrokerMetrics(CollectorRegistry()),
        other_logs={},
        clock=clock,
    )


class Engine(Protocol):
    """What all replicas share, and what outlives them."""

    def pool(self, network: Network, process: Process, clock: Clock) -> Pool:
        """One replica's connection to it, which ends with its process."""
        ...

    async def close(self) -> None: ...


class PoolOnSql:
    """The real statements of the SQL adapter."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def pool(self, network: Network, process: Process, clock: Clock) -> Pool:
        del clock  # the callers' own time decides
        return sql_pool(self._engine.connect(network, process))

    async def close(self) -> None:
        await self._engine.close()


class MemoryEngine:
    """The pool in memory, whose listings lag as those of DynamoDB; what few calls need is on
    SQLite."""

    def __init__(self, now: Callable[[], float], lag_sec: float) -> None:
        self._state = PoolState(now, lag_sec)
        self._jobs: dict[str, HeldJob] = {}
        self._circuits: dict[str, CircuitState] = {}
        self._others = PoolOnSql(SharedSqlite.migrated(MIGRATIONS))

    def pool(self, network: Network, process: Process, clock: Clock) -> Pool:
        async def call(work: Callable[[], T], /) -> T:
            return await network.call(process, work, lost=unavailable)

        return replace(
            self._others.pool(network, process, clock),
            store=MemoryPoolStore(self._state, call),
            leases=MemoryJobLeases(self._jobs, call),
            circuits=MemoryCircuits(self._circuits, call),
        )

    async def close(self) -> None:
        await self._others.close()


@asynccontextmanager
async def directly() -> AsyncIterator[Send]:
    """Calls without a socket, in place of those over HTTP."""

    async def send(replica: SimulatedReplica, operation: Operation) -> tuple[int | None, bytes]:
        return await replica.call(operation)

    yield send
