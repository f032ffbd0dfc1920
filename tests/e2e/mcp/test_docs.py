"""The lines of docs/agents.md connect clients."""

import json
import re
import sys
from pathlib import Path

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from sandyard.mcp.others import TOOLS as OTHERS
from sandyard.mcp.sandboxes import TOOLS
from tests.support.servers.processes import sandyard_serve
from tests.support.servers.users import signed_up

PAGE = (Path(__file__).parents[3] / "docs" / "agents.md").read_text()


async def test_each_configuration_connects(tmp_path: Path) -> None:
    with sandyard_serve(tmp_path / "data") as server:
        ann = signed_up(server, "ann", mail=1)
        key = ann.call("POST", "/api-keys", {"name": "agent", "scope": "run"}, expect=201)
        page = PAGE.replace("sbk-…", key["api_key"]).replace("http://127.0.0.1:8080", server.url)
        connected = 0
        for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL):
            [servers] = json.loads(block).values()
            chosen = servers["sandyard"]
            if "url" in chosen:
                async with (
                    httpx2.AsyncClient(headers=chosen["headers"], timeout=60) as http,
                    Client(streamable_http_client(chosen["url"], http_client=http)) as client,
                ):
                    assert (await client.list_tools()).tools
            else:
                command = str(Path(sys.executable).parent / chosen["command"])
                started = StdioServerParameters(
                    command=command, args=chosen["args"], env=chosen["env"]
                )
                async with Client(stdio_client(started)) as client:
                    assert (await client.list_tools()).tools
            connected += 1
        assert connected == 3


def test_all_tools_are_described() -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert named == {tool.__name__ for tool in (*TOOLS, *OTHERS)}
