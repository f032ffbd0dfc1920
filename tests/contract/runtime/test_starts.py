"""A start: one program per run id, or the reason why there is none."""

import asyncio
import time
from dataclasses import replace

import pytest

from sandyard.kit.errors import InvalidError
from sandyard.runtime.errors import (
    AttemptEndedError,
    ExitedAtOnceError,
    FilesTooLargeError,
    InvalidRepositoryError,
    NotListeningError,
    NotRunningError,
    ProcfileMissingError,
    SnapshotNotFoundError,
    StartFailedError,
    StillRunningError,
    StoppedWhileStartingError,
    UnsafePathError,
    WebLineMissingError,
)
from sandyard.runtime.model import Ended, FileChanges, Files, Program, Repository, Starting
from sandyard.runtime.ports import Runtime
from tests.support.runtime.programs import LIMITS, STATIC, new_run_id
from tests.support.runtime.runtimes import (
    RuntimeHost,
    serving,
    until,
    until_no_machine_is_left,
    web,
)

COUNTING = serving("echo run >>runs")
"""Writes a line into its workspace for each time that it is started."""
SLEEPING = web("echo waiting; exec sleep 1000")


async def failure_of(
    host: RuntimeHost, program: Program, runtime: Runtime | None = None
) -> StartFailedError:
    """Why one that ends with its program did not start: told, kept as its end and told again, until
    it is forgotten."""
    runtime, program = runtime or host.connect(), replace(program, policy="ends_machine")
    run_id, asked_at = new_run_id(), time.time()
    with pytest.raises(StartFailedError) as caught:
        await runtime.start(run_id, program, LIMITS)
    ended = await runtime.refresh(run_id)
    assert isinstance(ended, Ended)
    assert (ended.reason, ended.error_code) == ("not_started", caught.value.code)
    assert ended.message == caught.value.message
    assert ended.snapshot is None
    if isinstance(caught.value, ExitedAtOnceError | NotListeningError):
        assert ended.started_at is not None, "its program began"
        assert asked_at <= ended.started_at < ended.ended_at <= time.time()
    else:
        assert ended.started_at is None
    assert await runtime.stop(run_id) == ended
    await until_no_machine_is_left(host)
    with pytest.raises(type(caught.value)) as again:
        await runtime.start(run_id, program, LIMITS)
    assert again.value.details == caught.value.details
    log = (caught.value.details or {}).get("log")
    assert await runtime.tail_logs(run_id, lines=5) == log
    assert host.count_machines() == 0
    await runtime.forget(run_id)
    assert await runtime.refresh(run_id) is None
    return caught.value


async def test_it_runs_when_it_listens(host: RuntimeHost, runtime: Runtime) -> None:
    await runtime.check()
    run_id, before = new_run_id(), time.time()
    running = await runtime.start(run_id, STATIC, LIMITS)
    assert (await host.page(running)).content == b"<h1>hello</h1>"
    assert running.run_id == run_id
    assert before <= running.started_at <= time.time()
    allowed_sec = running.deadline_at - running.started_at
    assert allowed_sec == pytest.approx(LIMITS.max_running_sec, abs=2)
    assert await runtime.refresh(run_id) == running
    assert await runtime.start(run_id, STATIC, LIMITS) == running


async def test_its_time_begins_with_its_program_not_when_it_listens(runtime: Runtime) -> None:
    running = await runtime.start(new_run_id(), serving("sleep 1"), LIMITS)
    assert running.started_at + 1 <= time.time()
    assert running.deadline_at - running.started_at >= LIMITS.max_running_sec + 1
    assert await runtime.refresh(running.run_id) == running
    ended = await runtime.stop(running.run_id)
    assert (ended.started_at, ended.snapshot is None) == (running.started_at, False)


async def test_concurrent_starts_on_any_server_start_one(host: RuntimeHost) -> None:
    run_id = new_run_id()
    servers = [host.connect() for _ in range(3)]
    starts = (server.start(run_id, COUNTING, LIMITS) for server in servers * 2)
    [running] = set(await asyncio.gather(*starts))
    assert (await host.page(running, "/runs")).text == "run\n"
    assert host.count_machines() == 1


async def test_concurrent_starts_get_the_same_failure(runtime: Runtime) -> None:
    run_id = new_run_id()
    program = replace(web("sleep 0.3; echo once; exit 7"), policy="ends_machine")
    starts = (runtime.start(run_id, program, LIMITS) for _ in range(4))
    failures = await asyncio.gather(*starts, return_exceptions=True)
    assert {type(failure) for failure in failures} == {ExitedAtOnceError}
    assert await runtime.tail_logs(run_id, lines=5) == ["once"]


@pytest.mark.parametrize("name", ["static", "python-web"])  # the others install packages first
async def test_a_built_in_template_serves_a_page(
    host: RuntimeHost, runtime: Runtime, name: str
) -> None:
    program = Program(Repository(f"builtin:{name}"))
    running = await runtime.start(new_run_id(), program, LIMITS)
    assert "<h1>" in (await host.page(running)).text


async def test_the_environment_reaches_the_program(host: RuntimeHost, runtime: Runtime) -> None:
    program = replace(
        serving('echo "$GREETING" >greeting'),
        environment={"GREETING": "it's {me}; $HOME", "PORT": "1"},
    )
    running = await runtime.start(new_run_id(), program, LIMITS)
    assert (await host.page(running, "/greeting")).text == "it's {me}; $HOME\n"


async def test_without_a_web_line_there_is_nothing_to_run(host: RuntimeHost) -> None:
    program = Program(Files({"Procfile": b"worker: true\n# web: no\n  web: no\nweb:\n"}))
    assert isinstance(await failure_of(host, program), WebLineMissingError)


async def test_a_repository_needs_a_procfile(host: RuntimeHost, runtime: Runtime) -> None:
    running = await runtime.start(new_run_id(), serving(), LIMITS)
    await runtime.write_files(running.run_id, FileChanges(deleted=frozenset({"Procfile"})))
    snapshot = (await runtime.stop(running.run_id)).snapshot
    assert snapshot is not None
    program = Program(Repository("builtin:static"), snapshot_id=snapshot.id)
    assert isinstance(await failure_of(host, program), ProcfileMissingError)


async def test_a_program_that_exits_at_once_shows_its_last_lines(host: RuntimeHost) -> None:
    error = await failure_of(host, web("echo first; echo no database >&2; exit 7"))
    assert isinstance(error, ExitedAtOnceError)
    assert "code 7" in error.message
    assert error.details == {"log": ["first", "no database"]}
    error = await failure_of(host, web("exec no-such-command"))
    assert "127" in error.message
    assert "not found" in error.message


async def test_a_program_that_never_listens_is_ended(host: RuntimeHost) -> None:
    error = await failure_of(host, SLEEPING, host.connect(listen_timeout_sec=3))
    assert isinstance(error, NotListeningError)
    assert "within 3 s" in error.message
    assert error.details == {"log": ["waiting"]}


async def test_until_it_listens_it_is_starting_and_a_stop_ends_it(
    host: RuntimeHost, runtime: Runtime
) -> None:
    run_id = new_run_id()
    start = asyncio.create_task(runtime.start(run_id, SLEEPING, LIMITS))
    starting = await until(runtime, run_id, Starting)
    assert await runtime.list_runs("sandbox") == [starting]
    with pytest.raises(NotRunningError):
        await runtime.sample(run_id)
    with pytest.raises(StillRunningError):
        await runtime.forget(run_id)
    ended = await runtime.stop(run_id)
    assert (ended.reason, ended.error_code) == ("not_started", "STOPPED_WHILE_STARTING")
    with pytest.raises(StoppedWhileStartingError):
        await start
    await until_no_machine_is_left(host)


async def test_an_attempt_runs_once(runtime: Runtime) -> None:
    run_id = new_run_id()
    await runtime.start(run_id, STATIC, LIMITS)
    ended = await runtime.stop(run_id)
    with pytest.raises(AttemptEndedError):
        await runtime.start(run_id, STATIC, LIMITS)
    assert await runtime.refresh(run_id) == ended
    again = replace(run_id, attempt="again")
    assert (await runtime.start(again, STATIC, LIMITS)).run_id == again


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (Program(Files({"../x": b""})), UnsafePathError),
        (Program(Files({"large": bytes(LIMITS.storage_bytes + 1)})), FilesTooLargeError),
        (replace(STATIC, environment={"A=B": ""}), InvalidError),
        (Program(Repository("http://example.com/x.git")), InvalidRepositoryError),
        (Program(Repository("ext::sh -c id")), InvalidRepositoryError),
        (Program(Repository("file:///etc")), InvalidRepositoryError),
        (Program(Repository("builtin:no-such")), InvalidRepositoryError),
        (replace(STATIC, snapshot_id="unknown"), SnapshotNotFoundError),
        (replace(STATIC, snapshot_id="../../etc/passwd"), SnapshotNotFoundError),
        (replace(STATIC, snapshot_id="team/none:default"), SnapshotNotFoundError),
    ],
)
async def test_of_what_can_not_be_tried_nothing_is_kept(
    runtime: Runtime, program: Program, error: type[Exception]
) -> None:
    run_id = new_run_id()
    with pytest.raises(error):
        await runtime.start(run_id, program, LIMITS)
    assert await runtime.refresh(run_id) is None
    assert await runtime.list_runs("sandbox") == []
