"""The Broker in this process, built from the variables of the environment."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from sandyard.broker.wiring.part import BrokerPart, build_broker
from sandyard.broker.wiring.provider import ProviderAddress
from sandyard.entrypoints.http.api import create_app
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.settings import load_settings
from tests.support.clocks import RunningClock

TOKENS = {
    "BROKER_API_TOKEN": "track-token-of-the-tests",
    "BROKER_ADMIN_TOKEN": "admin-token-of-the-tests",
}


@dataclass(frozen=True, slots=True)
class BrokerApi:
    part: BrokerPart
    client: httpx.AsyncClient
    clock: RunningClock

    async def run(self, job: str) -> Any:
        """The report of one run of this job."""
        [found] = [each for each in self.part.schedule if each.plain_name == job]
        return await self.part.runner.run(found)

    async def operate(self, method: str, path: str, body: Any = None) -> Any:
        """The body of an operator's call, which must succeed."""
        headers = {"Authorization": f"Bearer {TOKENS['BROKER_ADMIN_TOKEN']}"}
        answer = await self.client.request(
            method, f"/v1/admin{path}", json=body, headers=headers, timeout=60
        )
        assert answer.is_success, answer.text
        return answer.json()

    async def allocate(self, track: str, token: str | None = None) -> httpx.Response:
        token = token or TOKENS["BROKER_API_TOKEN"]
        headers = {"Authorization": f"Bearer {token}", "X-Track-ID": track}
        return await self.client.post("/v1/allocate", headers=headers)

    async def replace(self, track: str, sandbox_id: str) -> httpx.Response:
        token = TOKENS["BROKER_API_TOKEN"]
        headers = {"Authorization": f"Bearer {token}", "X-Track-ID": track}
        path = f"/v1/sandboxes/{sandbox_id}/replace"
        return await self.client.post(path, headers=headers, json={"reason": "broken"})

    async def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.operate("GET", "/sandboxes"))["sandboxes"]
        return found


@asynccontextmanager
async def broker_api(data_dir: Path, provider_url: str) -> AsyncIterator[BrokerApi]:
    """With the settings of the environment, on an engine that has its schema or tables."""
    settings, clock = load_settings(), RunningClock()
    part = build_broker(
        settings,
        data_dir=data_dir,
        provider_address=ProviderAddress(provider_url, "", provider_url),
        registry=CollectorRegistry(),
        other_logs={},
        clock=clock,
    )
    app = create_app(settings, [part], registry=CollectorRegistry(), in_flight=InFlight())
    transport = httpx.ASGITransport(app)
    try:
        await part.prepare()
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield BrokerApi(part, client, clock)
    finally:
        await part.close()
