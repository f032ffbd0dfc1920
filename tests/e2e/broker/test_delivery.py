"""No event is lost and no subject's order broken, though the server is killed and half of the
deliveries fail."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandyard.kit.free_ports import free_port
from tests.support.broker.event_receivers import Receiver, arrivals, receiving
from tests.support.servers.processes import (
    ServerProcess,
    csp_simulator,
    run_sandyard,
    sandyard_serve,
)
from tests.support.storage.engines import AWS_ENVIRONMENT, create_database

SETTINGS = {
    "PARTS": "broker",
    "LOG_LEVEL": "WARNING",
    "JOB_LEASE_SEC": "3",
    "EVENT_RETRY_BASE_SEC": "0.02",
    "EVENT_RETRY_MAX_SEC": "0.2",
    "WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
}
CALLERS = 20


async def test_a_killed_server_loses_no_event(tmp_path: Path) -> None:
    await deliver_through_kills(tmp_path, SETTINGS, changes=400, kills=2)


@pytest.mark.torture
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("engine", ["sqlite", "postgresql", "dynamodb"])
async def test_ten_thousand_changes(
    engine: str, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> None:
    settings = SETTINGS
    if engine == "postgresql":
        settings = SETTINGS | {"DATABASE_URL": await create_database(postgres_url)}
        upgrade(tmp_path, settings, "db", "upgrade")
    if engine == "dynamodb":
        table = {"DDB_ENDPOINT_URL": dynamo_url, "DDB_TABLE_NAME": f"Pool-{free_port()}"}
        settings = SETTINGS | AWS_ENVIRONMENT | {"POOL_STORE": "dynamodb"} | table
        upgrade(tmp_path, settings, "tables", "create")
    await deliver_through_kills(tmp_path, settings, changes=10_000, kills=4)


def upgrade(folder: Path, settings: Mapping[str, str], *arguments: str) -> None:
    process = run_sandyard(*arguments, environment=dict(settings), log=folder / "upgrade.log")
    process.communicate(timeout=60)
    assert process.returncode == 0, (folder / "upgrade.log").read_text()


async def deliver_through_kills(
    folder: Path, settings: Mapping[str, str], *, changes: int, kills: int
) -> None:
    port = free_port()
    receiver = Receiver(failing=0.5)
    with csp_simulator(folder, "--count", "50") as provider:
        environment = {**settings, "CSP_BASE_URL": provider}
        async with receiving(receiver):
            load = Load()
            for number in range(kills + 1):
                with sandyard_serve(folder / "data", environment=environment, port=port) as server:
                    if number == 0:
                        receiver.secret = set_up(server, receiver.url)
                    stop_at = changes if number == kills else changes * (number + 1) // (kills + 1)
                    await load.run(server, until=stop_at)
                    if number < kills:
                        await taken(receiver, stop_at // 4)
                        server.kill()
                        continue
                    expected = await all_events(server)
                    await arrived(receiver, sum(map(len, expected.values())))
    assert sum(map(len, expected.values())) >= changes
    assert arrivals(receiver) == expected
    assert len(receiver.taken) > sum(map(len, expected.values())), "none came twice"
    assert not receiver.forged


def set_up(server: ServerProcess, url: str) -> str:
    """A synced pool and a webhook; its secret."""
    body = {"url": url, "kinds": ["sandbox.quarantined", "sandbox.restored"]}
    made = httpx.post(
        f"{server.url}/v1/admin/webhooks", headers=server.admin, json=body, timeout=60
    )
    assert made.status_code == 201, made.text
    synced = httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60)
    while synced.status_code == 503:  # a busy machine has let the job's short lease run out
        synced = httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60)
    assert synced.status_code == 200, synced.text
    return str(made.json()["secret"])


class Load:
    """Sandboxes that operators take out of the pool and bring back, as often as is wanted."""

    def __init__(self) -> None:
        self.made = 0

    async def run(self, server: ServerProcess, *, until: int) -> None:
        async with httpx.AsyncClient(base_url=server.url, headers=server.admin, timeout=60) as api:
            page = (await api.get("/v1/admin/sandboxes", params={"limit": 100})).json()
            ids = [each["sandbox_id"] for each in page["sandboxes"]]
            shares = [ids[index::CALLERS] for index in range(CALLERS)]
            await asyncio.gather(*(self._toggle(api, share, until) for share in shares))

    async def _toggle(self, api: httpx.AsyncClient, ids: list[str], until: int) -> None:
        while self.made < until:
            path = f"/v1/admin/sandboxes/{random.choice(ids)}"
            for action in ("quarantine", "restore"):
                answer = await api.post(f"{path}/{action}")
                assert answer.status_code in (200, 409), answer.text
                self.made += answer.status_code == 200


async def all_events(server: ServerProcess) -> dict[str, list[str]]:
    """By subject, in the order of its changes."""
    found: list[dict[str, Any]] = []
    async with httpx.AsyncClient(base_url=server.url, headers=server.admin, timeout=60) as api:
        for kind in ("sandbox.quarantined", "sandbox.restored"):
            cursor: str | None = None
            while True:
                params = {"kind": kind, "limit": "100"} | ({"cursor": cursor} if cursor else {})
                page = (await api.get("/v1/admin/events", params=params)).json()
                found += page["events"]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
    by_subject: dict[str, list[str]] = defaultdict(list)
    for event in sorted(found, key=lambda each: int(each["sequence"])):
        by_subject[event["subject"]].append(event["event_id"])
    return dict(by_subject)


async def taken(receiver: Receiver, number: int) -> None:
    """Until some have arrived; on DynamoDB that is a minute later, and the kill comes before."""
    try:
        async with asyncio.timeout(20):
            while len(receiver.taken) < number:
                await asyncio.sleep(0.05)
    except TimeoutError:
        return


async def arrived(receiver: Receiver, number: int) -> None:
    async with asyncio.timeout(1000):
        while len({str(each["event_id"]) for each in receiver.taken}) < number:
            await asyncio.sleep(0.2)
