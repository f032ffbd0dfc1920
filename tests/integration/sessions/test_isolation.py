"""Another account's sandbox is not there, on any route into it."""

import aiohttp
import pytest

from tests.integration.sessions.boxes import Box
from tests.integration.sessions.test_terminal import connected, told
from tests.support.platform.in_process import code_of

CALLS = [
    ("POST", "/commands", {"command": "true"}),
    ("GET", "/commands", None),
    ("GET", "/commands/p1", None),
    ("DELETE", "/commands/p1", None),
    ("GET", "/commands/p1/output", None),
    ("POST", "/commands/p1/input", {"data": "x"}),
    ("POST", "/commands/p1/signal", {}),
    ("GET", "/files?path=x", None),
    ("PUT", "/files?path=x", {}),
    ("DELETE", "/files?path=x", None),
    ("GET", "/files/tar", None),
    ("PUT", "/files/tar", {}),
    ("GET", "/files/list", None),
    ("GET", "/files/stat?path=x", None),
    ("POST", "/files/move", {"source": "x", "target": "y"}),
    ("POST", "/files/mkdir", {"path": "z"}),
    ("GET", "/ports", None),
    ("POST", "/terminal/tokens", None),
    ("GET", "/env", None),
    ("PUT", "/env/A", {"value": "x"}),
    ("DELETE", "/env/A", None),
]


async def test_anothers_sandbox_is_not_found(box: Box) -> None:
    await box.write("x", b"kept")
    await box.run(["sleep", "600"], background=True)
    bob = await box.api.admin()
    for method, path, body in CALLS:
        answer = await box.api.call(method, f"{box.path}{path}", bob, json=body)
        assert code_of(answer) == (404, "SANDBOX_UNKNOWN"), (method, path)
        answer = await box.api.call(method, f"{box.path}{path}", json=body)
        assert code_of(answer) == (401, "LOGIN_REQUIRED"), (method, path)
        unknown = await box.api.call(method, f"/sandboxes/sbx-none{path}", box.owner, json=body)
        assert code_of(unknown) == (404, "SANDBOX_UNKNOWN"), (method, path)
    assert await box.read("x") == b"kept"
    assert [each["is_running"] for each in (await box.ask("GET", "/commands"))["commands"]] == [
        True
    ]


async def test_anothers_terminal_is_not_found(box: Box) -> None:
    bob = await box.api.account()
    async with connected(box, headers=bob.headers) as terminal:
        assert (await told(terminal))["code"] == "SANDBOX_UNKNOWN"
    mine = await box.ask("POST", "/terminal/tokens")
    for path in ("/sandboxes/sbx-none", "/sandboxes/" + "sbx-" + "0" * 17):
        async with connected(box, f"?token={mine['token']}", headers={}, path=path) as terminal:
            assert (await told(terminal))["code"] == "LOGIN_REQUIRED"


@pytest.mark.parametrize(("scope", "opens"), [("read", False), ("run", True)])
async def test_a_terminal_takes_the_scope_run(box: Box, scope: str, opens: bool) -> None:
    body = {"name": scope, "scope": scope}
    key = (await box.api.post("/api-keys", box.owner, body))["api_key"]
    async with connected(box, headers={"X-API-Key": key}) as terminal:
        message = await terminal.receive(timeout=20)
        assert message.type is aiohttp.WSMsgType.TEXT
        assert ('"attached"' in message.data) is opens
        assert ("SCOPE_MISSING" in message.data) is not opens
