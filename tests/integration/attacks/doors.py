"""Attacks by an account through MCP, and through what volumes contain."""

import json
from itertools import count

from tests.integration.attacks.attacker import Attacker

_MCP = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


async def mcp_calls(attacker: Attacker) -> None:
    """Tools whose output is long, whose arguments are large, and lists of all tools."""
    box = (await attacker.new_sandbox())["E2b-Sandbox-Id"]
    headers = attacker.account | _MCP
    loud = {"sandbox_id": box, "command": "head -c 50000000 /dev/zero | tr '\\0' x"}
    large = {"sandbox_id": box, "path": "large", "text": "x" * 900_000}
    calls = [
        {"method": "tools/call", "params": {"name": "run_command", "arguments": loud}},
        {"method": "tools/call", "params": {"name": "write_file", "arguments": large}},
        {"method": "tools/list", "params": {}},
    ]
    bodies = [json.dumps({"jsonrpc": "2.0", "id": 1, **each}).encode() for each in calls]
    numbers = count()

    async def call() -> None:
        body = bodies[next(numbers) % len(bodies)]
        await attacker.request("POST", "/mcp", body, headers=headers)

    answer = await attacker.request("POST", "/mcp", bodies[1], headers=headers)
    assert b'"isError":false' in answer, answer[:1000]
    await attacker.at_once(50, call)


async def volume_contents(attacker: Attacker) -> None:
    """Each call needs a machine; many wait for it, and some read without end."""
    made = await attacker.call("POST", "/e2b/volumes", {"name": "data"})
    headers = {"Authorization": f"Bearer {made['token']}"}
    top = f"/e2b/volumecontent/{made['volumeID']}"
    written = await attacker.request("PUT", f"{top}/file?path=a", bytes(8_000_000), headers=headers)
    assert b" 201 " in written[:20], written[:1000]
    await attacker.at_once(
        50, lambda: attacker.request("GET", f"{top}/file?path=a", headers=headers, reads=1000)
    )
