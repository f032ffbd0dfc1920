"""The Platform and E2B's API behind a real server, with machines that are folders."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandyard.entrypoints.http.api import entry_of
from sandyard.entrypoints.server.listeners import listening
from tests.fakes.runtime import FakeRuntime
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import Caller, PlatformApi, platform_api


@dataclass(frozen=True, slots=True)
class Yard:
    """The server, and one account's calls to it."""

    api: PlatformApi
    account: Caller
    url: str

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A call of the account; `path` is the whole one."""
        headers = self.account.headers | options.pop("headers", {})
        return await self.api.client.request(method, path, headers=headers, **options)

    async def create_e2b(self) -> dict[str, str]:
        """The headers of calls to a new sandbox of E2B's API."""
        made = await self.call("POST", "/e2b/v2/sandboxes", json={"templateID": "base"})
        assert made.status_code == 201, made.text
        body = made.json()
        return {"E2b-Sandbox-Id": body["sandboxID"], "X-Access-Token": body["envdAccessToken"]}

    async def send(self, request: bytes) -> bytes:
        """What the server answers to these bytes on a connection of their own."""
        url = httpx.URL(self.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        try:
            writer.write(request)
            await writer.drain()
            async with asyncio.timeout(30):
                return await reader.read(1 << 16)
        finally:
            writer.close()


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    runtime, clock = FakeRuntime(tmp_path / "machines"), ManualClock(time.time())
    async with (
        platform_api(None, tmp_path, clock, runtime=runtime) as api,
        listening(entry_of(api.app)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        api.client = client
        yield Yard(api, await api.account("ann"), url)
    await runtime.end_all()
