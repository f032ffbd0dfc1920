"""Numbers that no clock, signal or terminal has, and bodies that break off: mistakes of the caller,
never of the server."""

from typing import Any

import pytest

from sandyard.e2b_api.envd.connect import frame
from tests.integration.attacks.inputs.conftest import Yard
from tests.support.platform.sandboxes import act, add_sandbox

HUGE = 1e300
DIGITS = "9" * 400
STREAM = {"Content-Type": "application/connect+json"}
PROCESS = {"cmd": "/bin/sleep", "args": ["60"], "cwd": "/workspace"}


@pytest.mark.parametrize("number", [HUGE, -HUGE, int(HUGE), 10**400])
async def test_times_of_e2b(yard: Yard, number: Any) -> None:
    made = await yard.call("POST", "/e2b/v2/sandboxes", json={"templateID": "base"})
    path = f"/e2b/sandboxes/{made.json()['sandboxID']}"
    calls = [
        ("POST", "/e2b/v2/sandboxes", {"templateID": "base", "timeout": number}),
        ("POST", f"{path}/timeout", {"timeout": number}),
        ("POST", f"{path}/refreshes", {"duration": number}),
        ("POST", f"{path}/connect", {"timeout": number}),
        ("POST", "/e2b/v3/templates", {"name": "a", "memoryMB": number}),
    ]
    for method, called, body in calls:
        answer = await yard.call(method, called, json=body)
        assert answer.status_code < 500, (called, answer.text)
    for query in ({"start": str(number)}, {"end": str(number)}, {"start": "nan", "end": "inf"}):
        answer = await yard.call("GET", f"{path}/metrics", params=query)
        assert answer.status_code < 500, (query, answer.text)


async def test_numbers_in_messages_to_a_sandbox(yard: Yard) -> None:
    inside = await yard.create_e2b()
    start = frame({"process": PROCESS, "tag": "a", "pty": {"size": {"cols": 80, "rows": 24}}})
    headers = inside | STREAM | {"Connect-Timeout-Ms": DIGITS, "Keepalive-Ping-Interval": DIGITS}
    opening = yard.api.client.stream(
        "POST",
        "/e2b/process.Process/Start",
        content=start,
        headers=yard.account.headers | headers,
    )
    async with opening as running:
        assert running.status_code == 200
        content = running.aiter_bytes()
        assert b'"start"' in await anext(content)
        selected = {"process": {"tag": "a"}}
        numbers: list[Any] = [HUGE, int(HUGE), -1, "a", [], 2**31]
        for number in numbers:
            calls: list[tuple[str, Any]] = [
                ("process.Process/SendSignal", {"signal": number}),
                ("process.Process/Update", {"pty": {"size": {"cols": number, "rows": number}}}),
                ("process.Process/Update", {"pty": {"size": number}}),
                ("filesystem.Filesystem/ListDir", {"path": "/workspace", "depth": number}),
            ]
            for call, body in calls:
                answer = await yard.call(
                    "POST", f"/e2b/{call}", json=selected | body, headers=inside
                )
                assert answer.status_code < 500, (call, number, answer.text)
    wrong = frame({"process": PROCESS | {"args": 7}, "pty": {"size": {"cols": HUGE}}})
    answer = await yard.call(
        "POST", "/e2b/process.Process/Start", content=wrong, headers=inside | STREAM
    )
    assert answer.status_code < 500
    assert b'"internal"' not in answer.content


async def test_numbers_of_the_platform(yard: Yard) -> None:
    sandbox = await add_sandbox(yard.api, yard.account)
    await act(yard.api, yard.account, sandbox, "start")
    path = f"/api/v1/sandboxes/{sandbox['sandbox_id']}"
    silent = {"command": "sleep 60", "background": True}
    command = (await yard.call("POST", f"{path}/commands", json=silent)).json()["command_id"]
    await yard.call("PUT", f"{path}/files", params={"path": "a"}, content=b"abc")
    calls: list[tuple[str, str, Any]] = [
        ("POST", f"{path}/commands", {"command": "true", "timeout_sec": HUGE}),
        ("POST", f"{path}/commands", {"command": "true", "terminal": {"columns": HUGE}}),
        ("POST", f"{path}/start", {"max_running_seconds": HUGE}),
        ("PATCH", path, {"max_running_seconds": HUGE}),
        ("GET", f"{path}/commands/{command}/output?offset={DIGITS}", None),
        ("GET", f"{path}/commands/{command}/output?offset={2**63}", None),
        ("GET", f"{path}/metrics?start={DIGITS}", None),
        ("GET", f"{path}/logs?lines={DIGITS}", None),
    ]
    for method, called, body in calls:
        answer = await yard.call(method, called, json=body)
        assert answer.status_code < 500, (called, answer.text)
    ranged = {"Range": f"bytes={DIGITS}-{DIGITS}"}
    answer = await yard.call("GET", f"{path}/files", params={"path": "a"}, headers=ranged)
    assert answer.status_code < 500


@pytest.mark.parametrize(
    "chunk", [b"zz\r\n{}\r\n0\r\n\r\n", b"-1\r\n\r\n", b"5\r\n{}\r\n0\r\n\r\n"]
)
@pytest.mark.parametrize(
    "path", ["/api/v1/auth/login", "/console/login", "/e2b/v2/sandboxes", "/e2b/files?path=a"]
)
async def test_a_malformed_chunk_is_a_mistake_of_the_caller(
    yard: Yard, path: str, chunk: bytes
) -> None:
    inside = await yard.create_e2b() if "files" in path else {}
    fields = yard.account.headers | inside | {"Sec-Fetch-Site": "same-origin"}
    lines = [f"POST {path} HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    lines += ["Content-Type: application/octet-stream", "", ""]
    answer = await yard.send("\r\n".join(lines).encode() + chunk)
    assert not answer or answer.split(b" ")[1].startswith(b"4"), answer
