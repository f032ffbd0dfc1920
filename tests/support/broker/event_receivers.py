"""Receivers of events for the tests, and stores that delivery is tested on."""

import asyncio
import base64
import hashlib
import hmac
import json
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path

from aiohttp import web

from sandyard.broker.delivery.dispatcher import Dispatcher, Logs, Route
from sandyard.broker.delivery.model import RetryPolicy, Webhook
from sandyard.broker.delivery.ports import DeliveryStore
from sandyard.broker.delivery.stores.dynamo import DynamoDeliveryStore
from sandyard.broker.delivery.stores.sql import SqlDeliveryStore
from sandyard.broker.delivery.stream import Stream, StreamPolicy
from sandyard.broker.delivery.webhooks import WebhookClient, Webhooks, WebhookSink
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.stores import tables
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.kit.changes.events import EventQuery, LoggedEvent
from sandyard.kit.dynamo.job_leases import DynamoJobLeases
from sandyard.kit.jobs import JobLeases, JobRunner
from sandyard.kit.sql.job_leases import SqlJobLeases
from tests.support.clocks import RunningClock
from tests.support.storage.engines import broker_database, pool_table

LOOPBACK = [ip_network("127.0.0.0/8")]
QUICK = RetryPolicy(first_sec=0.01, longest_sec=0.05)
SETTLED_SEC = 120
"""On DynamoDB a log is read once it has settled: the tests' clock is so much ahead."""


@dataclass
class Receiver:
    """An HTTP server that takes webhooks, as often as `failing` lets it."""

    failing: float = 0
    status: int | None = None
    """What it answers, if it is always the same."""
    secret: str = ""
    url: str = ""
    taken: list[dict[str, object]] = field(default_factory=list)
    calls: int = 0
    forged: int = 0

    async def take(self, request: web.Request) -> web.Response:
        self.calls += 1
        body = await request.read()
        if self.secret and not _is_signed(request, body, self.secret):
            self.forged += 1
        if self.status is not None:
            return web.Response(status=self.status)
        late = random.random() < self.failing / 2
        if not late and random.random() < self.failing / 2:
            return web.Response(status=500)
        self.taken.append(json.loads(body)["data"])
        # Half of the failures are answers that are lost: the event comes twice.
        return web.Response(status=503 if late else 204)


def _is_signed(request: web.Request, body: bytes, secret: str) -> bool:
    """As a receiver checks it by Standard Webhooks."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    stamp = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}."
    made = base64.b64encode(hmac.new(key, stamp.encode() + body, hashlib.sha256).digest())
    return f"v1,{made.decode()}" in request.headers["webhook-signature"].split(" ")


@asynccontextmanager
async def receiving(receiver: Receiver) -> AsyncIterator[Receiver]:
    app = web.Application()
    app.router.add_post("/{tail:.*}", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    [address] = runner.addresses
    receiver.url = f"http://127.0.0.1:{address[1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()


@dataclass
class Bench:
    """A pool, and what is needed to deliver its events."""

    pool: PoolStore
    store: DeliveryStore
    leases: JobLeases
    clock: RunningClock
    retry: RetryPolicy = QUICK

    def __post_init__(self) -> None:
        self.client = WebhookClient(timeout_sec=10, allowed=LOOPBACK, clock=self.clock)
        self.logs = Logs(self.pool.events, {})
        self.webhooks = Webhooks(
            self.pool,
            self.store,
            clock=self.clock,
            find_event=self.logs.find,
            post=self.client.post,
            require_public=self.client.require_public,
        )

    def route(self, webhook: Webhook) -> Route:
        sink = WebhookSink(
            webhook, self.client, log=self.store.log_attempts, disable=self.webhooks.disable
        )
        policy = StreamPolicy(self.retry, poll_sec=0.05)

        def stream(log: object) -> Stream:
            return Stream(sink, self.pool.events, self.store, clock=self.clock, policy=policy)

        return Route(sink.name, webhook.sequence, stream, sink.close)

    def dispatcher(self, holder: str = "one") -> Dispatcher:
        runner = JobRunner(self.leases, clock=self.clock, holder=holder, lease_sec=60)
        return Dispatcher(
            self.store,
            self.logs,
            runner,
            clock=self.clock,
            fixed=[],
            webhook_route=self.route,
        )

    async def logged(self, since_id: str = "") -> list[LoggedEvent]:
        """All events, in the order of their positions."""
        position: str | None = None
        found: list[LoggedEvent] = []
        while True:
            events, end = await self.pool.events.read_after(position, limit=500)
            found += [each for each in events if each.event_id >= since_id]
            if end == position or not events:
                return found
            position = end

    async def settle(self) -> None:
        """What was written until now can be read; PostgreSQL shows it once no transaction from
        before it runs, in any database."""
        self.clock.advance(SETTLED_SEC)
        newest = (await self.pool.events.page(EventQuery(), limit=1, cursor=None)).items
        async with asyncio.timeout(60):
            while newest and newest[0] not in await self.logged():
                await asyncio.sleep(0.02)


@asynccontextmanager
async def delivery_bench(
    engine: str, folder: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[Bench]:
    clock = RunningClock()
    if engine == "dynamodb":
        async with pool_table(dynamo_url) as pool:
            store = DynamoPoolStore(pool, clock=clock, prefetch_size=15)
            deliveries = DynamoDeliveryStore(pool.table, attempts_kept_sec=3600)
            bench = Bench(store, deliveries, DynamoJobLeases(pool.table), clock)
            try:
                yield bench
            finally:
                await bench.client.close()
        return
    async with broker_database(engine, folder, postgres_url) as database:
        bench = Bench(
            SqlPoolStore(database),
            SqlDeliveryStore(database),
            SqlJobLeases(database, tables.jobs),
            clock,
        )
        try:
            yield bench
        finally:
            await bench.client.close()


def by_subject(events: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Of (subject, event id) pairs, each subject's ids as they first came."""
    found: dict[str, list[str]] = defaultdict(list)
    for subject, event_id in events:
        if event_id not in found[subject]:
            found[subject].append(event_id)
    return dict(found)


def arrivals(receiver: Receiver) -> dict[str, list[str]]:
    return by_subject((str(each["subject"]), str(each["event_id"])) for each in receiver.taken)


def written(logged: Iterable[LoggedEvent]) -> dict[str, list[str]]:
    return by_subject((each.event.subject, each.event_id) for each in logged)


async def until(condition: object, *, seconds: float = 60) -> None:
    """Wait until the condition holds; fail if it does not in this time."""
    async with asyncio.timeout(seconds):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.02)
