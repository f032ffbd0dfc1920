"""`process.Process` over plain processes."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sandyard.e2b_api.envd.machine import UserSession
from sandyard.e2b_api.envd.processes import ProcessService
from sandyard.e2b_api.errors import InvalidRequestError
from sandyard.runtime.errors import CommandRefusedError, NotATerminalError, ProcessNotFoundError


@pytest.fixture
def processes() -> ProcessService:
    return ProcessService()


def shell(script: str, **fields: Any) -> dict[str, Any]:
    return {"process": {"cmd": "/bin/sh", "args": ["-c", script], **fields}}


async def run(
    processes: ProcessService, session: UserSession, message: Any, deadline_sec: float | None = None
) -> list[Any]:
    async with asyncio.timeout(60):
        return [each["event"] async for each in processes.start(session, message, deadline_sec)]


def output(events: list[Any], stream: str = "stdout") -> bytes:
    data = [each["data"] for each in events if "data" in each]
    return b"".join(base64.b64decode(each[stream]) for each in data if stream in each)


async def test_a_command_s_events(session: UserSession, processes: ProcessService) -> None:
    script = "echo out $OWN; echo err >&2; pwd; exit 3"
    events = await run(processes, session, shell(script, envs={"OWN": "x"}))
    assert events[0]["start"]["pid"] > 0
    assert output(events) == f"out x\n{session.home}\n".encode()
    assert output(events, "stderr") == b"err\n"
    assert events[-1]["end"] == {
        "exitCode": 3,
        "exited": True,
        "status": "exit status 3",
        "error": "exit status 3",
    }


async def test_a_signal_ends_it_and_is_named(
    session: UserSession, processes: ProcessService
) -> None:
    for name, status in {"KILL": "signal: killed", "ABRT": "signal: aborted"}.items():
        end = (await run(processes, session, shell(f"kill -{name} $$")))[-1]["end"]
        assert (end["exitCode"], end["exited"], end["error"]) == (-1, False, status)


async def test_it_is_ended_at_its_deadline(session: UserSession, processes: ProcessService) -> None:
    events = await run(processes, session, shell("sleep 100"), 0.2)
    assert events[-1]["end"]["status"] == "signal: killed"


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (shell("true", cwd="/missing"), CommandRefusedError),
        ({"process": {"cmd": "no-such-program"}}, CommandRefusedError),
        ({"process": {"cmd": ""}}, CommandRefusedError),
        ({"process": []}, InvalidRequestError),
        (shell("true", envs=[]), InvalidRequestError),
    ],
)
async def test_what_can_t_be_started(
    session: UserSession, processes: ProcessService, message: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await run(processes, session, message)


async def test_input_by_pid_and_by_tag(session: UserSession, processes: ProcessService) -> None:
    message = {**shell("cat"), "tag": "mine"}
    running = asyncio.create_task(run(processes, session, message))
    while not (listed := (await processes.list(session, {}))["processes"]):
        await asyncio.sleep(0.01)
    [shown] = listed
    assert (shown["tag"], shown["config"]["args"]) == ("mine", ["-c", "cat"])
    by_pid, by_tag = {"process": {"pid": shown["pid"]}}, {"process": {"tag": "mine"}}
    sent = base64.b64encode(b"one\n").decode()
    await processes.send_input(session, {**by_pid, "input": {"stdin": sent}})

    async def frames() -> AsyncIterator[Any]:
        yield {"event": {"start": by_tag}}
        yield {"event": {"data": {"input": {"stdin": sent}}}}

    await processes.stream_input(session, frames())
    for wrong in ({"stdin": "not base64"}, {"stdin": 1}):
        with pytest.raises(InvalidRequestError):
            await processes.send_input(session, {**by_pid, "input": wrong})
    with pytest.raises(NotATerminalError):
        await processes.send_input(session, {**by_pid, "input": {"pty": sent}})
    with pytest.raises(NotATerminalError):
        await processes.update(session, {**by_pid, "pty": {"size": {"cols": 1, "rows": 1}}})
    with pytest.raises(InvalidRequestError):
        await processes.send_signal(session, {**by_pid, "signal": "SIGNAL_ODD"})
    await processes.close_stdin(session, by_pid)
    assert output(await running) == b"one\none\n"
    with pytest.raises(ProcessNotFoundError):
        await processes.close_stdin(session, by_pid)


async def test_a_terminal(session: UserSession, processes: ProcessService) -> None:
    message = {**shell("stty size; exit"), "pty": {"size": {"cols": 100, "rows": 30}}}
    assert output(await run(processes, session, message), "pty") == b"30 100\r\n"


async def test_who_connects_gets_the_output_from_then_on(
    session: UserSession, processes: ProcessService
) -> None:
    running = asyncio.create_task(run(processes, session, shell("echo before; read x; echo $x")))
    while not (listed := (await processes.list(session, {}))["processes"]):
        await asyncio.sleep(0.01)
    by_pid = {"process": {"pid": listed[0]["pid"]}}
    stored = session.session.processes
    [process] = await stored.list()
    while not [each async for each in stored.output(process.id)]:
        await asyncio.sleep(0.01)
    events: Any = processes.connect(session, by_pid, None)
    assert (await anext(events))["event"]["start"]["pid"] == process.pid
    sent = base64.b64encode(b"after\n").decode()
    await processes.send_input(session, {**by_pid, "input": {"stdin": sent}})
    assert output([each["event"] async for each in events]) == b"after\n"
    assert output(await running) == b"before\nafter\n"


async def test_a_process_that_runs_can_be_signalled(
    session: UserSession, processes: ProcessService
) -> None:
    running = asyncio.create_task(run(processes, session, shell("sleep 100")))
    while not (listed := (await processes.list(session, {}))["processes"]):
        await asyncio.sleep(0.01)
    selected = {"process": {"pid": listed[0]["pid"]}, "signal": "SIGNAL_SIGTERM"}
    await processes.send_signal(session, selected)
    assert (await running)[-1]["end"]["status"] == "signal: terminated"
