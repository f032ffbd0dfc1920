"""What a session into a machine at E2B is, besides what every session promises."""

import signal

import pytest

from sandyard.kit.errors import UnavailableError
from sandyard.runtime.model import Program
from sandyard.runtime.programs.runner import ProgramRunner
from sandyard.runtime.remote.guest import guest_files
from sandyard.runtime.sessions.model import Command
from sandyard.runtime.sessions.ports import Session
from tests.integration.runtime_e2b.runtimes import start
from tests.support.e2b.machines import E2bMachines
from tests.support.runtime.sessions import pieces, read_all, shell

BARE = Program(None)


async def bare(runtime: ProgramRunner) -> Session:
    running = await start(runtime, BARE)
    return await runtime.session(running.run_id)


async def test_a_machine_without_a_program_waits_for_commands_and_keeps_its_files(
    double: E2bMachines, runtime: ProgramRunner
) -> None:
    running = await start(runtime, BARE)
    session = await runtime.session(running.run_id)
    assert await shell(session, "echo kept >/workspace/file; cat file") == b"kept\n"
    await session.processes.start(Command(("sleep", "1000")))
    snapshot = (await runtime.stop(running.run_id)).snapshot
    assert snapshot is not None
    [stored] = double.snapshots.values()
    assert stored.processes == 0
    again = await start(runtime, Program(None, snapshot_id=snapshot.id))
    session = await runtime.session(again.run_id)
    assert await read_all(session, "file") == b"kept\n"
    assert await session.processes.list() == []


async def test_a_process_whose_shim_was_killed_is_told_as_killed(
    runtime: ProgramRunner,
) -> None:
    session = await bare(runtime)
    process = await session.processes.start(Command(("sh", "-c", "echo one; exec sleep 1000")))
    async for output in session.processes.output(process.id, follow=True):
        assert output.data == b"one\n"
        break
    await shell(session, f"kill -9 $(cut -d' ' -f4 /proc/{process.pid}/stat)")
    ended = await session.processes.wait(process.id, timeout_sec=20)
    assert ended.exit_code == 128 + signal.SIGKILL


async def test_what_is_no_answer_is_an_outage(runtime: ProgramRunner) -> None:
    session = await bare(runtime)
    main = next(path for path in guest_files() if path.endswith("__main__.py"))
    for code in (b"print('nonsense')", b"print('[1]')", b"print('{}')", b"raise SystemExit(3)"):
        await session.files.write("copy", pieces(guest_files()[main]))
        replace = b"import os, sys; os.replace('/home/user/workspace/copy', sys.argv[0]); "
        await session.files.write(f"/home/user/{main}", pieces(replace + code))
        with pytest.raises(UnavailableError):
            await session.files.stat("/workspace")
        assert (await session.files.stat("/workspace")).kind == "folder"
