"""What a kernel of its own (gVisor) costs and gives: the same work with both isolations."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median

import psutil

from benchmarks.report import Figure, Measured, Say
from sandyard.kit.clock import SystemClock
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Files, IsolationMode, Limits, Program, RunId, Running
from sandyard.runtime.programs.warm import WarmPool, WarmRuns
from sandyard.runtime.records.run_folder import WarmFolders
from sandyard.runtime.sessions.model import Command
from sandyard.runtime.sessions.ports import Session
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import end_all

_LIMITS = Limits(
    cpu=1, memory_bytes=1 << 30, processes=128, storage_bytes=1 << 30, max_running_sec=600
)
_PROGRAM = Program(Files({"Procfile": b"web: exec python3 -m http.server $PORT\n"}))
_STARTS, _COMMANDS, _FORKS = 3, 40, 3
_FILE_MB, _HELD_MB = 100, 200
_HOLD = f"import time; held = bytes([1]) * ({_HELD_MB} << 20); time.sleep(600)"
_WORK = {
    "100,000 calls of stat, s": "import os\nfor _ in range(100_000): os.stat('.')",
    "1,000 files made and removed, s": "import os\nfor n in range(1000):\n"
    "    open(f'x{n}', 'w').close()\nfor n in range(1000):\n    os.unlink(f'x{n}')",
    "50 MB through SHA-256 in pure CPU, s": "import hashlib\nfor _ in range(50):\n"
    "    hashlib.sha256(bytes(1 << 20)).digest()",
    f"{_FILE_MB} MB written and read inside, s": "piece = bytes(1 << 20)\n"
    f"with open('big', 'wb') as file:\n    for _ in range({_FILE_MB}):\n        file.write(piece)\n"
    "with open('big', 'rb') as file:\n    while file.read(1 << 20):\n        pass",
}


def measure(folder: Path, say: Say) -> Measured:
    found: dict[str, dict[IsolationMode, str]] = {}
    for isolation in ("bubblewrap", "gvisor"):
        for name, value in asyncio.run(_measure(folder / isolation, isolation, say)).items():
            found.setdefault(name, {})[isolation] = value
    return Measured(
        [
            Figure(name, " | ".join(values.get(each, "-") for each in ("bubblewrap", "gvisor")))
            for name, values in found.items()
        ],
        rows="bubblewrap | gVisor",
    )


async def _measure(folder: Path, isolation: IsolationMode, say: Say) -> dict[str, str]:
    runtime = LocalRuntime(folder, LocalOptions())
    found: dict[str, str] = {}
    program = replace(_PROGRAM, isolation=isolation)
    try:
        say(f"isolations: starts with {isolation}")
        starts = [await _timed(_start(runtime, program, n)) for n in range(_STARTS + 1)][1:]
        found["cold start until it serves, s"] = f"{median(starts):.2f}"
        found["warm start, s"] = f"{await _warm(runtime, folder, program):.3f}"
        run = RunId("sandbox", "box", "0")
        session = await runtime.session(run)
        memory = _memory_of(runtime, run)
        found["memory of an idle sandbox, MB"] = f"{memory / 1e6:.0f}"
        say(f"isolations: commands with {isolation}")
        trips = [await _timed(_command(session, "true")) for _ in range(_COMMANDS)]
        found["command round trip, p50, ms"] = f"{median(trips) * 1000:.1f}"
        sent = await _timed(session.files.write("sent", _pieces()))
        found[f"{_FILE_MB} MB sent by the API, MB/s"] = f"{_FILE_MB / sent:.0f}"
        for name, code in _WORK.items():
            say(f"isolations: {name} with {isolation}")
            found[name] = f"{await _timed(_command(session, 'python3', '-c', code)):.2f}"
        if isolation == "gvisor":
            found |= await _memory_kept(runtime, session, run, program, say)
    finally:
        await end_all(runtime)
    return found


async def _memory_kept(
    runtime: LocalRuntime, session: Session, run: RunId, program: Program, say: Say
) -> dict[str, str]:
    say(f"isolations: {_FORKS} forks, and a pause with {_HELD_MB} MB")
    await session.processes.start(Command(("python3", "-c", _HOLD)))
    await asyncio.sleep(3)
    packed = await _timed(runtime.save_archive(run, "forked", has_memory=True))
    copies = replace(program, archive_id="forked")
    forks = [await _timed(_start(runtime, copies, 10 + n)) for n in range(_FORKS)]
    paused = await _timed(runtime.stop(run, has_memory=True))
    ended = await runtime.find(run)
    snapshot = getattr(ended, "snapshot", None)
    resumed = replace(program, snapshot_id=snapshot.id if snapshot else None)
    resume = await _timed(_start(runtime, resumed, 20))
    return {
        f"pause with {_HELD_MB} MB of memory, s": f"{paused:.2f}",
        f"resume with {_HELD_MB} MB of memory, s": f"{resume:.2f}",
        f"fork of {_FORKS} with {_HELD_MB} MB each: pause, then each start, s": f"{packed:.2f}, "
        + ", ".join(f"{each:.2f}" for each in forks),
    }


async def _start(runtime: LocalRuntime, program: Program, attempt: int) -> Running:
    return await runtime.start(RunId("sandbox", "box", str(attempt)), program, _LIMITS)


async def _warm(runtime: LocalRuntime, folder: Path, program: Program) -> float:
    runs = WarmRuns(runtime, WarmFolders(folder), SystemClock())
    pool = WarmPool("warm", program, _LIMITS, count=1)
    await runs.keep([pool])
    return await _timed(runs.take(pool, to=RunId("sandbox", "warm", "1"), limits=_LIMITS))


def _memory_of(runtime: LocalRuntime, run: RunId) -> int:
    """Of the supervisor and all below it, pages that several share divided among them."""
    supervisor = psutil.Process(runtime.folder_of(run).supervisor_pid())
    total = 0
    for each in (supervisor, *supervisor.children(recursive=True)):
        with suppress(psutil.Error):
            total += each.memory_full_info().pss
    return total


async def _command(session: Session, *arguments: str) -> None:
    process = await session.processes.start(Command(arguments))
    ended = await session.processes.wait(process.id)
    if ended.exit_code:
        raise RuntimeError(f"{arguments} ended with {ended.exit_code}")


async def _pieces() -> AsyncIterator[bytes]:
    piece = os.urandom(1 << 20)
    for _ in range(_FILE_MB):
        yield piece


async def _timed(work: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun
