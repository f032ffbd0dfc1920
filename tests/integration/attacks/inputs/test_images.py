"""Registries that never answer: who pulls from them delays nobody else for long."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.support.clocks import ManualClock
from tests.support.platform.in_process import PlatformApi, platform_api
from tests.support.runtime.images import SETTINGS, distroless
from tests.support.runtime.root_file_systems import docker_archive, image_config

ACCOUNTS = 8


async def until(api: PlatformApi, reads: int) -> None:
    async with asyncio.timeout(60):
        while len(api.part.wired.images._under_way) != reads:
            await asyncio.sleep(0.02)


async def test_slow_registries_hold_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    registry = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    host = f"127.0.0.1:{registry.sockets[0].getsockname()[1]}"
    chosen = {"image_registries": f"http://{host}"}
    async with platform_api(None, tmp_path, ManualClock(time.time()), sandboxes=chosen) as api:
        monkeypatch.setattr(api.part.wired.images, "_turn_sec", 0.05)
        for _ in range(ACCOUNTS):
            await api.post("/images", await api.account(), {"reference": f"{host}/slow"})
        await until(api, ACCOUNTS)
        archive = docker_archive(distroless(), config=image_config(**SETTINGS))
        ann = await api.account()
        options = {"params": {"name": "mine"}, "content": archive}
        await api.call("POST", "/images/import", ann, **options)
        await until(api, ACCOUNTS)
        [image] = (await api.get("/images", ann))["images"]
        assert image["status"] == "ready", image["reason"]
    registry.close()
