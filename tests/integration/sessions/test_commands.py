"""Commands over HTTP."""

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.integration.sessions.boxes import Box
from tests.support.platform.in_process import code_of
from tests.support.platform.sandboxes import act, add_sandbox

WAITING = "echo ready; exec sleep 600"


async def test_a_command_is_run_and_waited_for(box: Box) -> None:
    ran = await box.run(["sh", "-c", "printf out; printf err >&2; exit 3"])
    assert ran["exit_code"] == 3
    assert not ran["is_running"]
    assert ran["ended_at"] >= ran["started_at"]
    assert ran["result"] == {
        "stdout": "out",
        "stderr": "err",
        "stdout_truncated": False,
        "stderr_truncated": False,
        "timed_out": False,
        "encoding": "text",
    }
    line = await box.run("echo $((1 + 1)) | tr 2 3")
    assert line["arguments"] == ["/bin/sh", "-c", "echo $((1 + 1)) | tr 2 3"]
    assert line["result"]["stdout"] == "3\n"


async def test_bytes_come_as_base64_or_replaced(box: Box) -> None:
    command = "printf 'a\\377'"
    assert (await box.run(command))["result"]["stdout"] == "a\ufffd"
    encoded = (await box.run(command, encoding="base64"))["result"]["stdout"]
    assert base64.b64decode(encoded) == b"a\xff"


async def test_the_end_of_long_output_is_answered_and_the_rest_can_be_read(box: Box) -> None:
    ran = await box.run("head -c 2000000 /dev/zero | tr '\\0' x; echo end; echo e >&2")
    result = ran["result"]
    assert result["stdout"].endswith("xend\n")
    assert len(result["stdout"]) == 1024 * 1024
    assert (result["stdout_truncated"], result["stderr_truncated"]) == (True, False)
    path, offset, size = f"/commands/{ran['command_id']}/output", 0, 0
    while True:
        page = await box.ask("GET", path, params={"offset": offset})
        size += sum(len(piece["data"]) for piece in page["output"])
        offset = page["next_offset"]
        if page["is_complete"]:
            break
    assert size == offset == 2_000_006


@pytest.mark.parametrize(("on_timeout", "is_running"), [("kill", False), ("leave_running", True)])
async def test_a_command_that_takes_too_long(box: Box, on_timeout: str, is_running: bool) -> None:
    ran = await box.run(WAITING, timeout_sec=0.3, on_timeout=on_timeout)
    assert ran["result"]["timed_out"]
    assert ran["result"]["stdout"] == "ready\n"
    assert ran["is_running"] is is_running
    assert ran["exit_code"] == (None if is_running else 137)


async def test_a_command_in_the_background_is_listed_and_ended(box: Box) -> None:
    started = await box.run(WAITING, background=True, tag="server")
    assert started["is_running"]
    assert started["result"] is None
    listed = (await box.ask("GET", "/commands"))["commands"]
    assert [(each["command_id"], each["tag"]) for each in listed] == [
        (started["command_id"], "server")
    ]
    path = f"/commands/{started['command_id']}"
    assert (await box.ask("GET", path))["is_running"]
    async with asyncio.timeout(60):
        while not (await box.ask("GET", f"{path}/output"))["output"]:
            await asyncio.sleep(0.01)
    assert (await box.ask("DELETE", path))["exit_code"] == 137
    assert (await box.ask("DELETE", path))["exit_code"] == 137
    assert (await box.ask("GET", f"{path}/output"))["output"][0]["data"] == "ready\n"


async def test_a_signal_is_sent_by_name(box: Box) -> None:
    script = "trap 'exit 9' USR1; echo ready; while :; do sleep 0.05; done"
    started = await box.run(script, background=True)
    path = f"/commands/{started['command_id']}"
    await events_until(box, path, "ready")
    await box.ask("POST", f"{path}/signal", json={"signal": "SIGUSR1"})
    assert (await events_until(box, path, "exit"))[-1][1] == {"exit_code": 9}
    refused = await box.call("POST", f"{path}/signal", json={"signal": "SIGNONE"})
    assert code_of(refused) == (400, "INVALID_REQUEST")


async def test_input_is_written_and_closed(box: Box) -> None:
    started = await box.run(["cat"], background=True, has_input=True)
    path = f"/commands/{started['command_id']}"
    await box.ask("POST", f"{path}/input", json={"data": "grün\n"})
    last = {"data": base64.b64encode(b"\xff\n").decode(), "encoding": "base64", "close": True}
    await box.ask("POST", f"{path}/input", json=last)
    assert (await events_until(box, path, "exit"))[-1][1] == {"exit_code": 0}
    output = await box.ask("GET", f"{path}/output", params={"encoding": "base64"})
    written = b"".join(base64.b64decode(each["data"]) for each in output["output"])
    assert written == "grün\n".encode() + b"\xff\n"
    late = await box.call("POST", f"{path}/input", json={"data": "x"})
    assert code_of(late) == (409, "INPUT_CLOSED")


async def test_output_is_followed_and_taken_up_again(box: Box) -> None:
    script = "echo one; read line; echo two; echo e >&2"
    started = await box.run(script, background=True, has_input=True)
    path = f"/commands/{started['command_id']}"
    first = await events_until(box, path, "one")
    assert first == [("stdout", {"data": "one\n", "skipped": 0, "encoding": "text"}, 4)]
    await box.ask("POST", f"{path}/input", json={"data": "\n"})
    rest = await events_until(box, path, "exit", **{"Last-Event-ID": str(first[-1][2])})
    told = {name: data["data"] for name, data, _ in rest[:-1]}
    assert told == {"stdout": "two\n", "stderr": "e\n"}
    assert rest[-1][:2] == ("exit", {"exit_code": 0})


async def test_a_character_is_told_whole(box: Box) -> None:
    script = "printf 'gr\\303'; sleep 0.2; printf '\\274n\\303'"
    started = await box.run(script, background=True)
    seen = await events_until(box, f"/commands/{started['command_id']}", "exit")
    told = [(data["data"], number) for name, data, number in seen if name == "stdout"]
    assert told == [("gr", 2), ("ün", 5), ("\ufffd", 6)]


async def test_the_environment_of_the_call_goes_first(box: Box) -> None:
    project = f"/projects/{box.sandbox['project_id']}/env"
    for name, value in (("A", "project"), ("B", "project"), ("C", "project")):
        body = {"value": value, "secret": name == "A"}
        assert (await box.api.call("PUT", f"{project}/{name}", box.owner, json=body)).is_success
    for name in ("B", "C"):
        await box.ask("PUT", f"/env/{name}", json={"value": "sandbox"})
    ran = await box.run('echo "$A $B $C"', env={"C": "call"})
    assert ran["result"]["stdout"] == "project sandbox call\n"


async def test_a_folder_and_a_terminal(box: Box) -> None:
    await box.write("sub/here.txt", b"x")
    assert (await box.run(["ls"], folder="sub"))["result"]["stdout"] == "here.txt\n"
    ran = await box.run("stty size", terminal={"columns": 100, "rows": 30})
    assert ran["is_terminal"]
    assert ran["result"]["stdout"] == "30 100\r\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"command": ["no-such-program"]}, (409, "COMMAND_REFUSED")),
        ({"command": "true", "folder": "missing"}, (409, "COMMAND_REFUSED")),
        ({"command": []}, (400, "INVALID_REQUEST")),
        ({"command": ""}, (400, "INVALID_REQUEST")),
        ({"command": ["a\0b"]}, (400, "INVALID_REQUEST")),
        ({"command": 5}, (400, "INVALID_REQUEST")),
        ({"command": "true", "env": {"1A": "x"}}, (400, "INVALID_REQUEST")),
        ({"command": "true", "env": {"A": "\0"}}, (400, "INVALID_REQUEST")),
        ({"command": "true", "timeout_sec": 0}, (400, "INVALID_REQUEST")),
        ({"command": "true", "terminal": {"rows": 0}}, (400, "INVALID_REQUEST")),
        ({"command": "true", "unknown": 1}, (400, "INVALID_REQUEST")),
        ({}, (400, "INVALID_REQUEST")),
    ],
)
async def test_what_cant_be_run_is_refused(
    box: Box, body: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert code_of(await box.call("POST", "/commands", json=body)) == expected


async def test_a_command_of_neither_form_is_told_by_its_field(box: Box) -> None:
    answer = await box.call("POST", "/commands", json={"command": []})
    assert answer.json()["error"]["message"] == "Malformed: command. See details."


async def test_an_unknown_command_is_not_found(box: Box) -> None:
    for command_id in ("unknown", "..%2f", "A", "%00"):
        for method, path, body in (
            ("GET", "", None),
            ("DELETE", "", None),
            ("GET", "/output", None),
            ("GET", "/output?follow=true", None),
            ("POST", "/input", {"data": "x"}),
            ("POST", "/signal", {"signal": "SIGTERM"}),
        ):
            answer = await box.call(method, f"/commands/{command_id}{path}", json=body)
            assert answer.status_code == 404, (method, path, answer.text)


async def test_nothing_runs_in_a_sandbox_that_does_not(box: Box) -> None:
    never = await add_sandbox(box.api, box.owner)
    await act(box.api, box.owner, box.sandbox, "stop")
    path = f"/sandboxes/{never['sandbox_id']}"
    for each in (f"{path}/commands", f"{path}/files/list", f"{box.path}/commands"):
        answer = await box.api.call("GET", each, box.owner)
        assert code_of(answer) == (409, "NOT_RUNNING")


async def test_who_follows_a_command_is_told_that_its_sandbox_has_ended(box: Box) -> None:
    started = await box.run("echo begun; sleep 600", background=True)
    path = f"/commands/{started['command_id']}"
    following = asyncio.create_task(events_until(box, path, "ended"))
    await events_until(box, path, "begun")
    await act(box.api, box.owner, box.sandbox, "stop")
    [*_, (kind, told, _)] = await following
    assert (kind, told["code"]) == ("ended", "NOT_RUNNING")
    refused = (await box.call("GET", path)).json()["error"]
    assert "It ended: stopped by its owner." in refused["message"]


async def events_until(
    box: Box, path: str, wanted: str, **headers: str
) -> list[tuple[str, Any, int | None]]:
    """The events up to one of this name or with this text: name, data, id."""
    seen: list[tuple[str, Any, int | None]] = []
    fields: dict[str, str] = {}
    url = f"/api/v1{box.path}{path}/output?follow=true"
    async with (
        asyncio.timeout(20),
        box.api.client.stream("GET", url, headers=box.owner.headers | headers) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for line in answer.aiter_lines():
            if line:
                fields |= dict([line.split(": ", 1)])
                continue
            number = int(fields["id"]) if "id" in fields else None
            seen.append((fields["event"], json.loads(fields["data"]), number))
            if wanted == fields["event"] or wanted in fields["data"]:
                return seen
            fields = {}
    raise AssertionError(seen)
