"""Settings of the Broker, each by what it changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import boto3
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from sandyard.bootstrap.registry import get_spec
from sandyard.broker.wiring.provider import provider_policy
from sandyard.kit.store_states import in_any_state
from sandyard.settings import describe, load_settings
from sandyard.tools.provider.simulator import Faults, Simulator
from tests.integration.broker.yard import GatedProvider
from tests.integration.conftest import Serve
from tests.support.broker.event_receivers import Receiver, receiving
from tests.support.broker.in_process import TOKENS, BrokerApi, broker_api
from tests.support.storage.engines import AWS_ENVIRONMENT

DAY_SEC = 86_400


class Open(Protocol):
    async def __call__(self, url: str | None = None, /, **variables: str) -> BrokerApi:
        """The Broker with these variables; its provider is the simulator, or at this address."""
        ...


@pytest.fixture
async def broker(
    tmp_path: Path, simulator_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Open]:
    for name, _ in describe():
        monkeypatch.delenv(name, raising=False)
    async with AsyncExitStack() as stack:

        async def opened(url: str | None = None, /, **variables: str) -> BrokerApi:
            address = url or simulator_url
            chosen = TOKENS | {"CSP_BASE_URL": address, "CSP_MAX_ATTEMPTS": "1"} | variables
            for name, value in chosen.items():
                monkeypatch.setenv(name, value)
            return await stack.enter_async_context(broker_api(tmp_path, address))

        yield opened


async def filled(broker: Open, simulator: Simulator, number: int, **variables: str) -> BrokerApi:
    """With this many sandboxes in the pool."""
    simulator.create(number)
    api = await broker(**variables)
    assert (await api.run("sync")).added == number
    return api


@pytest.mark.parametrize("is_on", [True, False])
async def test_enable_request_id(broker: Open, is_on: bool) -> None:
    api = await broker(ENABLE_REQUEST_ID=str(is_on))
    assert ("x-request-id" in (await api.allocate("ann")).headers) is is_on


async def test_api_base_path(broker: Open) -> None:
    api = await broker(API_BASE_PATH="/labs/v1")
    assert (await api.allocate("ann")).status_code == 404
    assert (await api.client.post("/labs/v1/allocate")).status_code == 401


async def test_hold_hours(broker: Open, simulator: Simulator) -> None:
    api = await filled(broker, simulator, 1, HOLD_HOURS="0.25")
    [row] = await api.rows()
    before = int(api.clock.now())
    held = await api.operate("POST", f"/sandboxes/{row['sandbox_id']}/hold", {"reason": "look"})
    assert before <= held["held_until"] - 900 <= api.clock.now()


async def test_lease_max_replacements(broker: Open, simulator: Simulator) -> None:
    api = await filled(broker, simulator, 3, LEASE_MAX_REPLACEMENTS="1")
    sandbox_id = (await api.allocate("ann")).json()["sandbox_id"]
    replaced = await api.replace("ann", sandbox_id)
    assert replaced.status_code == 200
    again = await api.replace("ann", replaced.json()["sandbox_id"])
    assert again.status_code == 429


async def test_client_turnover_per_hour(broker: Open, simulator: Simulator) -> None:
    api = await filled(broker, simulator, 4, CLIENT_TURNOVER_PER_HOUR="2")
    course = {"name": "lab", "scopes": ["allocate"], "max_leases": 1}
    token = (await api.operate("POST", "/clients", course))["token"]
    for _ in range(2):
        leased = await api.allocate("ann", token)
        assert leased.status_code == 201
        await api.operate("POST", f"/sandboxes/{leased.json()['sandbox_id']}/release")
    assert (await api.allocate("ann", token)).status_code == 429


async def test_pool_low_available(broker: Open, simulator: Simulator) -> None:
    api = await filled(broker, simulator, 7, POOL_LOW_AVAILABLE="7")
    await api.run("pool")
    [low] = (await api.operate("GET", "/events?kind=pool.low"))["events"]
    assert (low["data"]["available"], low["data"]["threshold"]) == (7, 7)


async def test_pool_name_prefix(broker: Open, simulator: Simulator) -> None:
    api = await broker(POOL_NAME_PREFIX="dns-", POOL_MIN_AVAILABLE="2", POOL_CREATE_PER_HOUR="9")
    await api.run("pool")
    assert [each["name"][:4] for each in simulator.sandboxes.values()] == ["dns-", "dns-"]


@pytest.mark.parametrize(("minutes", "created"), [("5", 0), ("15", 1)])
async def test_pool_lookahead_minutes(broker: Open, minutes: str, created: int) -> None:
    """A reservation that begins in ten minutes."""
    api = await broker(POOL_LOOKAHEAD_MINUTES=minutes, POOL_CREATE_PER_HOUR="9", POOL_MAX_TOTAL="5")
    begins = int(api.clock.now()) + 600
    course = {"count": 1, "from": begins, "to": begins + 3600, "track_prefix": "c-"}
    await api.operate("POST", "/reservations", course)
    assert (await api.run("pool")).created == created


async def test_cleanup_parallel(broker: Open, simulator: Simulator, serve: Serve) -> None:
    provider = GatedProvider(simulator)
    provider.list_gate.set()
    simulator.create(6)
    api = await broker(await serve(provider.app()), CLEANUP_PARALLEL="2")
    await api.run("sync")
    await end_leases(api, 6)
    cleanup = asyncio.create_task(api.run("cleanup"))
    while provider.deletes_at_once < 2:
        await asyncio.sleep(0.01)
    provider.delete_gate.set()
    assert (await cleanup).deleted == 6
    assert provider.most_deletes_at_once == 2


async def test_deletion_backoff_max_sec(broker: Open, simulator: Simulator) -> None:
    api = await filled(
        broker, simulator, 1, DELETION_BACKOFF_BASE_SEC="5000", DELETION_BACKOFF_MAX_SEC="7"
    )
    await end_leases(api, 1)
    simulator.faults = Faults(outage="error")
    await api.run("cleanup")
    [row] = [each async for page in api.part.pool.store.everything() for each in page]
    assert row.next_attempt_at is not None
    assert 0 < row.next_attempt_at - api.clock.now() <= 7


async def end_leases(api: BrokerApi, number: int) -> None:
    for track in range(number):
        lease = (await api.allocate(f"track-{track}")).json()
        path = f"/sandboxes/{lease['sandbox_id']}/release"
        await api.operate("POST", path)


def test_csp_timeout_connect_sec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSP_TIMEOUT_CONNECT_SEC", "0.5")
    assert provider_policy(load_settings().provider).connect_timeout_sec == 0.5


@dataclass
class Probed:
    """Answers probes, slowly."""

    at_once: int = 0
    most_at_once: int = 0
    answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def _answer(self, _request: Request) -> Response:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.answer.wait()
        await asyncio.sleep(0.01)  # long enough that one too many would be seen beside it
        self.at_once -= 1
        return Response()

    async def serve(self, serve: Serve) -> str:
        router = Router()
        router.add_route("/", self._answer)
        return await serve(router)


async def test_probe_timeout_sec(broker: Open, simulator: Simulator, serve: Serve) -> None:
    probed = await Probed().serve(serve)
    limits = {"PROBE_TIMEOUT_SEC": "0.05", "PROBE_THRESHOLD": "1"}
    api = await filled(broker, simulator, 1, PROBE=f"{probed}/", **limits)
    await api.run("probe")
    [row] = await api.rows()
    assert "no answer within 0.05 s" in str(row)


async def test_probe_parallel(broker: Open, simulator: Simulator, serve: Serve) -> None:
    probed = Probed()
    probed.answer.set()
    url = await probed.serve(serve)
    api = await filled(broker, simulator, 6, PROBE=f"{url}/", PROBE_PARALLEL="2")
    await api.run("probe")
    assert probed.most_at_once == 2


async def test_event_retention_days(broker: Open, simulator: Simulator) -> None:
    api = await filled(broker, simulator, 1, EVENT_RETENTION_DAYS="7")
    await end_leases(api, 1)
    assert (await api.run("cleanup")).deleted == 1
    api.clock.advance(6 * DAY_SEC)
    assert (await api.run("events")).events_removed == 0
    api.clock.advance(2 * DAY_SEC)
    assert (await api.run("events")).events_removed > 0


@pytest.fixture
async def failing() -> AsyncIterator[Receiver]:
    async with receiving(Receiver(status=500)) as receiver:
        yield receiver


async def test_event_retry_hours(broker: Open, simulator: Simulator, failing: Receiver) -> None:
    api = await broker(WEBHOOK_ALLOWED_NETWORKS="127.0.0.0/8", EVENT_RETRY_HOURS="0.5")
    made = await api.operate("POST", "/webhooks", {"url": failing.url})
    simulator.create(1)
    await api.run("sync")
    for _ in range(2):
        await api.run("deliver")
    assert (await webhook(api, made))["disabled_reason"] is None
    api.clock.advance(1801)
    await api.run("deliver")
    assert (await webhook(api, made))["disabled_reason"].startswith("failed for 0.5 hours")


async def webhook(api: BrokerApi, made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = await api.operate("GET", f"/webhooks/{made['webhook_id']}")
    return found


async def test_webhook_timeout_sec(broker: Open, simulator: Simulator, serve: Serve) -> None:
    router, url = Router(), ""

    async def late(_request: Request) -> Response:
        await asyncio.sleep(1)
        return Response()

    router.add_route("/", late, methods=["POST"])
    url = await serve(router)
    limits = {"WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8", "WEBHOOK_TIMEOUT_SEC": "0.1"}
    api = await filled(broker, simulator, 1, **limits)
    made = await api.operate("POST", "/webhooks", {"url": f"{url}/"})
    [event, *_] = (await api.operate("GET", "/events"))["events"]
    path = f"/webhooks/{made['webhook_id']}/replay"
    attempt = await api.operate("POST", path, {"event_id": event["event_id"]})
    assert attempt["error"] == "no answer in time"


@pytest.fixture
async def dynamo(
    broker: Open, dynamo_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dict[str, str]]:
    """The variables of a Broker on DynamoDB whose tables and indexes have names of their own."""
    name = f"Pool{uuid4().hex[:8]}"
    variables = {
        **AWS_ENVIRONMENT,
        "POOL_STORE": "dynamodb",
        "DDB_ENDPOINT_URL": dynamo_url,
        "DDB_TABLE_NAME": name,
        "DDB_EVENTS_TABLE_NAME": f"{name}-History",
        "DDB_GSI1_NAME": "ByStatus",
        "DDB_GSI2_NAME": "ByTrack",
        "DDB_GSI3_NAME": "ByKey",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    open_tables = get_spec("broker").tables
    assert open_tables is not None
    with in_any_state():
        tables = open_tables(load_settings())
    await tables.create(lambda definition: definition)
    yield variables
    await tables.close()


async def test_names_of_tables_and_indexes_on_dynamodb(
    broker: Open, simulator: Simulator, dynamo: dict[str, str]
) -> None:
    api = await filled(broker, simulator, 2, **dynamo)
    lease = (await api.allocate("ann")).json()
    [found] = (await api.operate("GET", "/sandboxes?track=ann"))["sandboxes"]
    assert found["sandbox_id"] == lease["sandbox_id"]
    url = dynamo["DDB_ENDPOINT_URL"]
    tables = boto3.client("dynamodb", region_name="us-east-1", endpoint_url=url)
    made = tables.describe_table(TableName=dynamo["DDB_TABLE_NAME"])["Table"]
    indexes = {each["IndexName"] for each in made["GlobalSecondaryIndexes"]}
    assert indexes == {"ByStatus", "ByTrack", "ByKey"}
    assert tables.scan(TableName=dynamo["DDB_EVENTS_TABLE_NAME"])["Count"] > 0


@pytest.mark.parametrize(("candidates", "is_read_again"), [("1", True), ("100", False)])
async def test_k_candidates(
    broker: Open,
    simulator: Simulator,
    serve: Serve,
    dynamo: dict[str, str],
    candidates: str,
    is_read_again: bool,
) -> None:
    """Whether each claim reads the index."""
    proxy = CountingProxy(dynamo["DDB_ENDPOINT_URL"])
    variables = dynamo | {"DDB_ENDPOINT_URL": await serve(proxy), "K_CANDIDATES": candidates}
    api = await filled(broker, simulator, 6, **variables)
    await api.allocate("first")
    before = proxy.queries
    for number in range(4):
        assert (await api.allocate(f"track-{number}")).status_code == 201
    assert (proxy.queries > before) is is_read_again


class CountingProxy:
    """Passes calls on to DynamoDB, and counts its queries."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.queries = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.queries += request.headers["x-amz-target"].endswith(".Query")
        content = await request.body()
        async with httpx.AsyncClient(timeout=60) as client:
            answer = await client.post(self._url, content=content, headers=request.headers)
        body, status = answer.content, answer.status_code
        await Response(body, status, media_type="application/x-amz-json-1.0")(scope, receive, send)
