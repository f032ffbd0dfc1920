"""E2B's API in this process, over a Platform on SQLite whose machines are folders."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandyard.kit.errors import UnavailableError
from sandyard.runtime.model import Limits, Program, RunId, Running, Sample
from tests.fakes.runtime import FakeRuntime
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import Caller, PlatformApi, platform_api


class FaultyRuntime(FakeRuntime):
    """Starts and measurements fail with this error, if there is one."""

    error: Exception | None = None

    async def start(self, run_id: RunId, program: Program, limits: Limits) -> Running:
        self._fail()
        return await super().start(run_id, program, limits)

    async def sample(self, run_id: RunId) -> Sample:
        self._fail()
        return await super().sample(run_id)

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass(frozen=True)
class E2b:
    """One account's calls."""

    platform: PlatformApi
    runtime: FaultyRuntime
    account: Caller
    clock: ManualClock

    async def call(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> httpx.Response:
        sent = {
            **self.account.headers,
            **{name.replace("_", "-"): headers[name] for name in headers},
        }
        return await self.platform.client.request(method, f"/e2b{path}", json=body, headers=sent)

    async def as_another(self) -> "E2b":
        """The calls of another account."""
        return replace(self, account=await self.platform.account())

    async def create(self, **fields: Any) -> dict[str, Any]:
        made = await self.call("POST", "/v2/sandboxes", {"templateID": "base", **fields})
        assert made.status_code == 201, made.text
        body: dict[str, Any] = made.json()
        return body

    async def inside(self, sandbox: dict[str, Any], path: str, body: Any) -> httpx.Response:
        """A call to the sandbox itself."""
        return await self.call(
            "POST",
            path,
            body,
            e2b_sandbox_id=sandbox["sandboxID"],
            x_access_token=sandbox["envdAccessToken"],
        )


@pytest.fixture
async def e2b(tmp_path: Path) -> AsyncIterator[E2b]:
    runtime, clock = FaultyRuntime(tmp_path / "machines"), ManualClock(time.time())
    async with platform_api(None, tmp_path, clock, runtime=runtime) as platform:
        yield E2b(platform, runtime, await platform.account("ann"), clock)


@pytest.fixture
def outage() -> UnavailableError:
    return UnavailableError("The machine does not respond.")
