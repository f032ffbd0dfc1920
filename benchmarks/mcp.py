"""A command by an agent's tool at /mcp beside the same by the API, in one sandbox."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import httpx
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from benchmarks.report import Figure, Measured, Say
from tests.support.servers.processes import sandyard_serve
from tests.support.servers.users import signed_up

_CALLS = 100


def measure(folder: Path, say: Say) -> Measured:
    with sandyard_serve(folder / "data") as server:
        ann = signed_up(server, "ann", mail=1)
        made = ann.call("POST", "/api-keys", {"name": "agent", "scope": "run"}, expect=201)
        say("mcp: commands")
        by_tool, by_api = asyncio.run(_compare(server.url, made["api_key"]))
    return Measured(
        [
            Figure("a command by MCP, p50", f"{by_tool * 1000:.1f} ms"),
            Figure("the same by the API, p50", f"{by_api * 1000:.1f} ms"),
        ]
    )


async def _compare(url: str, key: str) -> tuple[float, float]:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx.AsyncClient(base_url=f"{url}/api/v1", headers=headers, timeout=60) as api,
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as agent,
    ):
        created = await agent.call_tool("create_sandbox", {"key": "bench", "minutes": 10})
        [content] = created.content
        assert content.type == "text"  # noqa: S101 - as every tool answers
        box = json.loads(content.text)["sandbox_id"]
        path, line = f"/sandboxes/{box}/commands", {"command": "true"}

        async def by_tool() -> object:
            return await agent.call_tool("run_command", {"sandbox_id": box, **line})

        async def by_api() -> object:
            return (await api.post(path, json=line)).raise_for_status()

        pairs = [(await _timed(by_tool), await _timed(by_api)) for _ in range(_CALLS)]
    return median(tool for tool, _ in pairs), median(own for _, own in pairs)


async def _timed(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began
