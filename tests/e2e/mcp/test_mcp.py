"""An agent's session by MCP's own client, over HTTP and over standard input and output."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.servers.processes import ServerProcess, sandyard_serve
from tests.support.servers.users import Person, signed_up

Transport = Literal["http", "stdio"]


@dataclass(frozen=True)
class Agents:
    """A server, and what agents of two accounts send to it."""

    server: ServerProcess
    ann: Person
    bob: Person

    def key(self, person: Person, scope: str = "run") -> str:
        body = {"name": f"agent {uuid4()}", "scope": scope}
        return str(person.call("POST", "/api-keys", body, expect=201)["api_key"])


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    folder = tmp_path_factory.mktemp("mcp") / "data"
    with sandyard_serve(folder) as server:
        yield Agents(server, signed_up(server, "ann", mail=1), signed_up(server, "bob", mail=2))


class Session:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> Any:
        found = await self.client.call_tool(tool, arguments)
        [content] = found.content
        assert content.type == "text"
        assert not found.is_error, content.text
        try:
            return json.loads(content.text)
        except json.JSONDecodeError:
            return content.text

    async def refused(self, tool: str, **arguments: Any) -> str:
        found = await self.client.call_tool(tool, arguments)
        assert found.is_error
        [content] = found.content
        assert content.type == "text"
        return content.text


@asynccontextmanager
async def over_http(server: ServerProcess, key: str, **headers: str) -> AsyncIterator[Session]:
    sent = {"Authorization": f"Bearer {key}", **headers}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=60) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
    ):
        yield Session(client)


@asynccontextmanager
async def over_stdio(server: ServerProcess, key: str) -> AsyncIterator[Session]:
    environment = {
        "SANDYARD_URL": server.url,
        "SANDYARD_API_KEY": key,
        "SANDYARD_TOKEN": server.track["Authorization"].removeprefix("Bearer "),
        "SANDYARD_CONFIG": "/nonexistent",
    }
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "sandyard", "mcp"], env=environment
    )
    async with Client(stdio_client(command)) as client:
        yield Session(client)


def session(
    transport: Transport, server: ServerProcess, key: str
) -> AbstractAsyncContextManager[Session]:
    return (over_http if transport == "http" else over_stdio)(server, key)


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_an_agent_works_in_a_sandbox(agents: Agents, transport: Transport) -> None:
    async with session(transport, agents.server, agents.key(agents.ann)) as agent:
        made = await agent.call("create_sandbox", key=transport, minutes=5)
        again = await agent.call("create_sandbox", key=transport, minutes=5)
        assert made == again
        assert made["status"] == "running"
        box = made["sandbox_id"]

        await agent.call("write_file", sandbox_id=box, path="app/main.py", text="print('one')\n")
        await agent.call("edit_file", sandbox_id=box, path="app/main.py", old="'one'", new="'two'")
        ran = await agent.call("run_command", sandbox_id=box, command="python3 app/main.py; exit 3")
        assert (ran["stdout"], ran["exit_code"]) == ("two\n", 3)
        found = await agent.call("search_files", sandbox_id=box, pattern="tw+o")
        assert found["matches"] == "/workspace/app/main.py:1:print('two')\n"
        listed = await agent.call("list_folder", sandbox_id=box, path="/workspace/app")
        assert [each["path"] for each in listed["files"]] == ["/workspace/app/main.py"]
        for path in ("app/main.py", "/workspace/app/main.py"):
            uri = f"sandyard://sandboxes/{box}/files/{path}"
            [content] = (await agent.client.read_resource(uri)).contents
            assert getattr(content, "text", "") == "print('two')\n"

        long = "echo begun; while ! test -e go; do sleep 0.1; done; echo done"
        started = await agent.call("start_command", sandbox_id=box, command=long)
        command = {"sandbox_id": box, "command_id": started["command_id"]}
        await agent.call("write_file", sandbox_id=box, path="go", text="")
        output = ""
        offset, is_complete = 0, False
        while not is_complete:
            part = await agent.call("read_output", **command, offset=offset)
            output += part["stdout"]
            offset, is_complete = part["next_offset"], part["is_complete"]
        assert output == "begun\ndone\n"

        serve = "cd app && python3 -m http.server 8123"
        await agent.call("start_command", sandbox_id=box, command=serve)
        link = await agent.call("expose_port", sandbox_id=box, port=8123, minutes=1)
        assert "8123-" in link["url"]
        copies = await agent.call(
            "fork_sandbox", sandbox_id=box, minutes=5, key=f"fork {transport}"
        )
        [copy] = [each["sandbox_id"] for each in copies["copies"]]
        forked = await agent.call("run_command", sandbox_id=copy, command="python3 app/main.py")
        assert forked["stdout"] == "two\n"
        stored = await agent.call("snapshot_sandbox", sandbox_id=box, key=f"kept {transport}")
        assert stored["snapshotID"]
        for each in (box, copy):
            await agent.call("delete_sandbox", sandbox_id=each)
        assert (await agent.call("list_sandboxes"))["sandboxes"] == []


async def test_a_sandbox_ends_at_its_time_without_its_agent(agents: Agents) -> None:
    async with over_http(agents.server, agents.key(agents.ann)) as agent:
        made = await agent.call("create_sandbox", key="brief", minutes=1)
    details = agents.ann.call("GET", f"/sandboxes/{made['sandbox_id']}")
    assert details["max_running_seconds"] == 60
    assert details["recycle_on_timeout"] is True


async def test_an_output_of_100_mb_is_returned_in_parts(agents: Agents) -> None:
    async with over_http(agents.server, agents.key(agents.ann)) as agent:
        made = await agent.call("create_sandbox", key="loud", minutes=5)
        box = made["sandbox_id"]
        line = "head -c 100000000 /dev/zero | tr '\\0' x; echo end"
        ran = await agent.call("run_command", sandbox_id=box, command=line, timeout_sec=120)
        assert ran["exit_code"] == 0
        assert len(ran["stdout"]) <= 30_000
        assert ran["skipped_bytes"] + ran["next_offset"] > 90_000_000
        assert not ran["is_complete"]
        await agent.call("delete_sandbox", sandbox_id=box)


async def test_another_accounts_sandbox_is_not_found(agents: Agents) -> None:
    async with (
        over_http(agents.server, agents.key(agents.ann)) as ann,
        over_http(agents.server, agents.key(agents.bob)) as bob,
    ):
        made = await ann.call("create_sandbox", key="the same", minutes=5)
        box = made["sandbox_id"]
        said = await bob.refused("run_command", sandbox_id=box, command="true")
        assert "SANDBOX_UNKNOWN" in said
        own = await bob.call("create_sandbox", key="the same", minutes=5)
        assert own["sandbox_id"] != box
        assert [each["sandbox_id"] for each in (await bob.call("list_sandboxes"))["sandboxes"]] == [
            own["sandbox_id"]
        ]


async def test_a_keys_scope_holds_and_its_revocation_closes_the_door(agents: Agents) -> None:
    made = agents.ann.call("POST", "/api-keys", {"name": "r", "scope": "read"}, expect=201)
    async with over_http(agents.server, made["api_key"]) as agent:
        await agent.call("list_templates")
        assert "SCOPE_MISSING" in await agent.refused("create_sandbox", key="k", minutes=1)
        agents.ann.call("DELETE", f"/api-keys/{made['key_id']}", expect=204)
    headers = {"Authorization": f"Bearer {made['api_key']}"}
    for sent in (headers, {}):
        answer = httpx.post(f"{agents.server.url}/mcp", headers=sent, json={}, timeout=60)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer ")
        error = answer.json()["error"]
        assert (error["code"], error["request_id"]) == (
            "UNAUTHORIZED",
            answer.headers["x-request-id"],
        )


async def test_leases_by_a_key_of_the_brokers(agents: Agents) -> None:
    token = agents.server.track["Authorization"].removeprefix("Bearer ")
    key = agents.key(agents.ann)
    async with over_http(agents.server, key, **{"X-Broker-Token": token}) as agent:
        leased = await agent.call("lease_sandbox", track="by-agent", key="one")
        assert await agent.call("lease_sandbox", track="by-agent", key="one") == leased
        released = await agent.call("release_lease", track="by-agent", key="one")
        assert released["sandbox_id"] == leased["sandbox_id"]
    async with over_http(agents.server, token) as agent:
        assert (await agent.call("lease_sandbox", track="by-token", key="two"))["sandbox_id"]
    async with over_http(agents.server, key) as agent:
        assert "UNAUTHORIZED" in await agent.refused("lease_sandbox", track="t", key="three")


async def test_a_preview_of_files_that_an_agent_wrote(agents: Agents) -> None:
    [project] = agents.ann.call("GET", "/projects")["projects"]
    async with over_http(agents.server, agents.key(agents.ann, "admin")) as agent:
        await agent.call(
            "write_project_files",
            project_id=project["project_id"],
            files={"index.html": "<h1>by an agent</h1>"},
        )
        shown = await agent.call("preview_sync", project_id=project["project_id"])
        assert shown["data"]["filesCount"] == 1
        status = await agent.call("preview_status", project_id=project["project_id"])
        assert status["status"] in ("running", "starting")
    agents.ann.call("DELETE", f"/projects/{project['project_id']}/sandbox")


async def test_fifty_sessions_at_once(agents: Agents) -> None:
    key = agents.key(agents.ann)

    async def count_tools() -> int:
        async with over_http(agents.server, key) as agent:
            return len((await agent.client.list_tools()).tools)

    counts = await asyncio.gather(*(count_tools() for _ in range(50)))
    [count] = set(counts)
    assert count > 20
