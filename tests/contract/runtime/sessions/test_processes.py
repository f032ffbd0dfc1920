"""The processes of a machine, as every session promises them."""

import asyncio
import signal
import time

import pytest

from sandyard.runtime.errors import (
    CommandRefusedError,
    InputClosedError,
    NotRunningError,
    ProcessNotFoundError,
)
from sandyard.runtime.sessions.model import WORKSPACE, Command, Output, Process
from sandyard.runtime.sessions.ports import Session
from tests.support.runtime.sessions import SessionHost, output_of, pieces, shell

FLOOD_BYTES = 50_000_000
FLOOD = ("head", "-c", str(FLOOD_BYTES), "/dev/zero")
WAITING = ("sh", "-c", "echo ready; exec sleep 600")
MEGABYTE = 1024 * 1024


async def start(session: Session, *arguments: str, has_input: bool = False) -> Process:
    return await session.processes.start(Command(arguments, has_input=has_input))


async def ended(session: Session, process: Process) -> Process:
    found = await session.processes.wait(process.id, timeout_sec=30)
    assert not found.is_running
    return found


async def until_written(session: Session, process: Process, text: bytes) -> int:
    """The offset at which this much has been written."""
    seen = b""
    async with asyncio.timeout(20):
        async for output in session.processes.output(process.id, follow=True):
            seen += output.data
            if text in seen:
                return output.offset
    raise AssertionError(seen)


async def test_a_command_tells_its_output_by_stream_and_its_end(session: Session) -> None:
    before = time.time()
    process = await start(session, "sh", "-c", "printf out; printf err >&2; exit 3")
    assert process.arguments[0] == "sh"
    assert process.folder == WORKSPACE
    assert process.pid > 0
    found = await ended(session, process)
    assert found.exit_code == 3
    assert found.ended_at is not None
    assert before - 60 < found.started_at <= found.ended_at
    outputs = [each async for each in session.processes.output(process.id)]
    for stream, text in (("stdout", b"out"), ("stderr", b"err")):
        assert b"".join(each.data for each in outputs if each.stream == stream) == text
    assert outputs[-1].offset == 6


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_signal_ends_the_process_and_its_group(session: Session, number: int) -> None:
    process = await start(session, "sh", "-c", "sh -c 'echo $$; exec sleep 600' & wait")
    await until_written(session, process, b"\n")
    await session.processes.signal(process.id, number)
    assert (await ended(session, process)).exit_code == 128 + number
    await session.processes.signal(process.id, number)  # nothing happens
    child = int(await output_of(session, process))
    runs = f"grep -qs '^State:[^Z]*$' /proc/{child}/status"
    async with asyncio.timeout(20):
        await shell(session, f"while {runs}; do sleep 0.02; done")


async def test_a_run_tells_the_process_what_it_writes_and_its_end(session: Session) -> None:
    script = "printf out; sleep 0.2; printf err >&2; exit 3"
    told = [each async for each in session.processes.run(Command(("sh", "-c", script)))]
    first, *outputs, last = told
    assert isinstance(first, Process)
    assert isinstance(last, Process)
    assert (first.id, last.exit_code) == (last.id, 3)
    assert last.ended_at is not None
    written = {"stdout": b"", "stderr": b""}
    for each in outputs:
        assert isinstance(each, Output)
        written[each.stream] += each.data
    assert written == {"stdout": b"out", "stderr": b"err"}


async def test_a_run_goes_on_when_nobody_listens_any_more(session: Session) -> None:
    told = session.processes.run(Command(WAITING))
    process = await anext(told)
    await told.aclose()
    assert isinstance(process, Process)
    await until_written(session, process, b"ready")
    assert (await session.processes.get(process.id)).is_running


async def test_a_run_that_is_paced_waits_for_its_reader(session: Session) -> None:
    read = 0
    async for each in session.processes.run(Command(FLOOD, is_paced=True)):
        if isinstance(each, Output):
            await asyncio.sleep(0 if read else 1)  # enough to write much more than is stored
            assert each.skipped == 0
            read += len(each.data)
    assert read == FLOOD_BYTES


async def test_a_run_that_is_paced_goes_on_without_a_reader(session: Session) -> None:
    told = session.processes.run(Command(FLOOD, is_paced=True))
    process = await anext(told)
    await told.aclose()
    assert isinstance(process, Process)
    assert (await ended(session, process)).exit_code == 0


async def test_a_run_that_is_refused_says_so_at_once(session: Session) -> None:
    with pytest.raises(CommandRefusedError):
        await anext(session.processes.run(Command(("no-such-program",))))


async def test_a_process_may_handle_a_signal(session: Session) -> None:
    script = "trap 'echo told; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    process = await start(session, "sh", "-c", script)
    await until_written(session, process, b"ready")
    await session.processes.signal(process.id, signal.SIGTERM)
    assert (await ended(session, process)).exit_code == 7
    assert b"told" in await output_of(session, process)


async def test_a_wait_ends_when_its_time_is_over(session: Session) -> None:
    process = await start(session, *WAITING)
    assert (await session.processes.wait(process.id, timeout_sec=0.05)).is_running
    assert (await session.processes.get(process.id)).is_running


async def test_a_child_that_keeps_the_output_open_does_not_hold_the_end_up(
    session: Session,
) -> None:
    process = await start(session, "sh", "-c", "sleep 600 & echo $!")
    assert (await ended(session, process)).exit_code == 0
    child = await asyncio.wait_for(output_of(session, process), 20)
    await shell(session, f"kill {int(child)}")


async def test_the_environment_and_the_arguments_arrive_as_they_are(session: Session) -> None:
    odd = "a b\n\"c\" 'd' $HOME `e` ü"
    script = 'printf "%s|%s|%s" "$ODD" "$1" "$#"'
    command = Command(("sh", "-c", script, "name", odd, ""), environment={"ODD": odd})
    process = await session.processes.start(command)
    assert (await output_of(session, process)).decode() == f"{odd}|{odd}|2"
    assert await shell(session, 'test -n "$PATH" && test -n "$HOME"') == b""


async def test_the_folder_is_where_it_runs(session: Session) -> None:
    await session.files.write("sub/here.txt", pieces(b"x"))
    for folder in ("sub", "/workspace/sub"):
        process = await session.processes.start(Command(("ls",), folder=folder))
        assert process.folder == "/workspace/sub"
        assert await output_of(session, process) == b"here.txt\n"


@pytest.mark.parametrize(
    "command",
    [
        Command(("no-such-program",)),
        Command(("/workspace",)),
        Command(("./plain",)),
        Command(("ls",), folder="missing"),
        Command(("ls",), folder="plain"),
        Command(("ls",), user="nobody-of-this-name"),
        Command(("ls", "a\0b")),
        Command(("ls",), environment={"A=B\0": "x"}),
        Command(()),
    ],
)
async def test_what_cant_be_run_is_refused(session: Session, command: Command) -> None:
    await session.files.write("plain", pieces(b"x"))
    with pytest.raises(CommandRefusedError):
        await session.processes.start(command)
    assert await session.processes.list() == []


async def test_input_is_taken_until_it_is_closed(session: Session) -> None:
    process = await start(session, "cat", has_input=True)
    await session.processes.write_input(process.id, b"one\n")
    await until_written(session, process, b"one\n")
    large = bytes(range(256)) * 8192
    _, written = await asyncio.gather(feed(session, process, large), output_of(session, process))
    assert written == b"one\n" + large
    assert (await ended(session, process)).exit_code == 0


async def feed(session: Session, process: Process, data: bytes) -> None:
    await session.processes.write_input(process.id, data)
    await session.processes.close_input(process.id)


async def test_no_input_is_taken_where_it_is_closed(session: Session) -> None:
    without = await start(session, *WAITING)
    shut = await start(session, *WAITING, has_input=True)
    await session.processes.close_input(shut.id)
    await session.processes.close_input(shut.id)
    over = await start(session, "true", has_input=True)
    await ended(session, over)
    for process in (without, shut, over):
        with pytest.raises(InputClosedError):
            await session.processes.write_input(process.id, b"x")


async def test_a_process_without_input_reads_nothing(session: Session) -> None:
    assert await asyncio.wait_for(shell(session, "cat"), 20) == b""


async def test_a_process_outlives_its_session_and_is_found_again(
    machine: SessionHost, session: Session
) -> None:
    process = await start(session, "sh", "-c", "echo one; read line; echo $line", has_input=True)
    offset = await until_written(session, process, b"one\n")
    del session
    other = await machine.connect()
    assert [each.id for each in await other.processes.list()] == [process.id]
    await other.processes.write_input(process.id, b"two\n")
    await ended(other, process)
    rest = other.processes.output(process.id, offset=offset, follow=True)
    assert b"".join([each.data async for each in rest]) == b"two\n"


async def test_output_is_read_again_from_any_offset_without_gap_or_double(
    session: Session,
) -> None:
    process = await start(session, "seq", "1", "20000")
    whole = await output_of(session, process)
    assert whole == b"".join(b"%d\n" % number for number in range(1, 20001))
    for offset in (0, 1, 4096, len(whole) - 1, len(whole), len(whole) + 10):
        rest = [each async for each in session.processes.output(process.id, offset=offset)]
        assert b"".join(each.data for each in rest) == whole[offset:]
        assert not any(each.skipped for each in rest)


async def test_a_reader_that_comes_back_misses_nothing(session: Session) -> None:
    script = "for i in $(seq 1 200); do echo $i; sleep 0.002; done"
    process = await start(session, "sh", "-c", script)
    whole, offset = b"", 0
    async with asyncio.timeout(30):
        while (await session.processes.get(process.id)).is_running:
            async for output in session.processes.output(process.id, offset=offset, follow=True):
                whole += output.data
                offset = output.offset
                break  # the connection was lost
    rest = session.processes.output(process.id, offset=offset)
    whole += b"".join([each.data async for each in rest])
    assert whole == b"".join(b"%d\n" % number for number in range(1, 201))


async def test_a_flood_is_kept_in_part_and_says_what_is_missing(session: Session) -> None:
    process = await start(session, *FLOOD)
    assert (await ended(session, process)).exit_code == 0
    kept = skipped = end = 0
    async for output in session.processes.output(process.id):
        kept += len(output.data)
        skipped += output.skipped
        end = output.offset
    assert end == FLOOD_BYTES
    assert kept + skipped == FLOOD_BYTES
    assert 64 * 1024 <= kept <= 16 * MEGABYTE
    assert await shell(session, "echo there") == b"there\n"


async def test_the_list_has_all_with_their_tags_oldest_first(session: Session) -> None:
    first = await session.processes.start(Command(WAITING, tag="server"))
    second = await start(session, "true")
    await ended(session, second)
    listed = await session.processes.list()
    assert [(each.id, each.tag, each.exit_code) for each in listed] == [
        (first.id, "server", None),
        (second.id, None, 0),
    ]
    assert await session.processes.get(first.id) == listed[0]


@pytest.mark.parametrize("process_id", ["unknown", "", "../1", "a\0b", "ü" * 100])
async def test_an_unknown_process_is_not_found(session: Session, process_id: str) -> None:
    processes = session.processes
    for attempt in (
        processes.get(process_id),
        processes.wait(process_id, timeout_sec=1),
        processes.write_input(process_id, b"x"),
        processes.close_input(process_id),
        processes.signal(process_id, signal.SIGTERM),
        anext(processes.output(process_id)),
    ):
        with pytest.raises(ProcessNotFoundError):
            await attempt


async def test_a_machine_that_ended_runs_nothing(machine: SessionHost, session: Session) -> None:
    process = await start(session, *WAITING)
    await machine.end()
    for attempt in (
        session.processes.start(Command(("true",))),
        session.processes.list(),
        session.processes.get(process.id),
        session.processes.signal(process.id, signal.SIGTERM),
        anext(session.processes.output(process.id)),
    ):
        with pytest.raises(NotRunningError):
            await attempt
    with pytest.raises(NotRunningError):
        await machine.connect()
