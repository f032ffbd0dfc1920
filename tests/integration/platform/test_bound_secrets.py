"""Secrets that are bound to hosts, from the API to the host's server, and on no disk."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contract.platform.sandboxes.test_silent_nodes import collect_ends
from tests.integration.runtime.egress.test_bound_secrets import Api
from tests.support.clocks import RunningClock
from tests.support.platform.in_process import Caller, MigratedEngines, PlatformApi, platform_api
from tests.support.platform.sandboxes import act, add_sandbox
from tests.support.servers.certificates import make_certificate
from tests.support.servers.injected import HOST, VALUE
from tests.support.servers.own_names import OwnNames, with_own_names
from tests.support.storage.engines import ONE_SQL_ENGINE

_BEARER = "Authorization: Bearer $API_KEY"


@dataclass(frozen=True, slots=True)
class Owner:
    api: PlatformApi
    host: Api
    caller: Caller
    path: str

    async def bind(self, value: str = VALUE, **more: Any) -> None:
        binding = {"hosts": [f"{HOST}:{self.host.port}"], **more}
        body = {"value": value, "secret": True, "binding": binding}
        where = f"{self.path}/env/API_KEY"
        answer = await self.api.call("PUT", where, self.caller, json=body)
        assert answer.status_code == 200, answer.text

    async def says(self, line: str) -> str:
        answer = await self.api.post(f"{self.path}/commands", self.caller, {"command": line})
        return str(answer["result"]["stdout"] + answer["result"]["stderr"])

    async def asks(self) -> str:
        return await self.says(f'curl -sS -H "{_BEARER}" https://{HOST}:{self.host.port}/')


@asynccontextmanager
async def owner(url: str | None, folder: Path, names: OwnNames) -> AsyncIterator[Owner]:
    names.set({HOST: "127.0.0.1"})
    certificate, host = make_certificate(folder, f"DNS:{HOST}"), Api()
    serving = asyncio.start_server(host.serve, "127.0.0.1", 0, ssl=certificate.serving())
    local = {
        "sandbox_egress_networks": "127.0.0.0/8",
        "sandbox_ca_file": str(certificate.file),
    }
    clock = RunningClock()
    async with (
        await serving as server,
        platform_api(url, folder / "data", clock, sandboxes=local) as api,
    ):
        host.port = server.sockets[0].getsockname()[1]
        caller = await api.account()
        sandbox = await add_sandbox(api, caller, network="internet")
        yield Owner(api, host, caller, f"/sandboxes/{sandbox['sandbox_id']}")
        for held in await api.part.wired.runtime.list_runs("sandbox"):
            await api.part.wired.runtime.stop(held.run_id)


@pytest.mark.parametrize("engine", ONE_SQL_ENGINE)
async def test_a_secret_is_used_changed_counted_and_ended_and_on_no_disk(
    engine: str, migrated: MigratedEngines, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    url = await migrated.copy(engine, data)

    async def scenario(names: OwnNames) -> None:
        async with owner(url, tmp_path, names) as ann:
            await ann.bind()
            await act(ann.api, ann.caller, {"sandbox_id": ann.path.split("/")[2]}, "start")
            assert await ann.asks() == "welcome"
            assert VALUE not in await ann.says("env; cat /proc/*/environ")
            await collect_ends(ann.api)
            await ann.bind("another-value")
            await collect_ends(ann.api)
            assert await ann.asks() == "who are you?"
            await ann.bind(most_requests=3)
            await collect_ends(ann.api)
            assert await ann.asks() == "welcome"
            assert "the budget of the secret API_KEY is used up" in await ann.asks()
            await collect_ends(ann.api)
            told = await ann.api.get("/notifications", ann.caller)
            assert "The budget of API_KEY is used up" in str(told)
            await ann.bind(most_requests=30)
            await collect_ends(ann.api)
            assert await ann.asks() == "welcome"
            assert await asyncio.to_thread(files_with_value, data) == []
            await ann.api.call("DELETE", f"{ann.path}/env/API_KEY", ann.caller)
            await collect_ends(ann.api)
            line = f"curl -sSk -H 'Authorization: x' https://{HOST}:{ann.host.port}/"
            assert await ann.says(line) == "who are you?"
            await act(ann.api, ann.caller, {"sandbox_id": ann.path.split("/")[2]}, "stop")
            assert await asyncio.to_thread(files_with_value, data) == []

    await with_own_names(tmp_path, scenario)


def files_with_value(folder: Path) -> list[Path]:
    files = [each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()]
    return [each for each in files if VALUE.encode() in each.read_bytes()]
