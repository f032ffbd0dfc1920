"""Starts a supervisor that shares nothing with the server: no session, descriptor or secret."""

import os
import sys
from pathlib import Path

import sandyard
from sandyard.runtime.local.host import processes
from sandyard.runtime.local.records.run_folder import LOCK, START_PIPE

SOURCES = Path(sandyard.__file__).parent.parent


def spawn_supervisor(folder: Path, lock: int, start_pipe: int | None) -> int:
    """Returns the supervisor's pid. It inherits the lock and the end of a pipe, and nothing else of
    ours; without that end it records the end of a machine.

    Uses `posix_spawn`, not `subprocess`: the supervisor must survive when we drop its handle.
    """
    # Without /proc it needs psutil, and so the installed packages.
    options = ["-S"] if processes.HAS_PROC else []
    module = "sandyard.runtime.local.supervisor.supervisor"
    log = open_log(folder)
    arguments = ["--close"] if start_pipe is None else []
    given = [] if start_pipe is None else [(os.POSIX_SPAWN_DUP2, start_pipe, START_PIPE)]
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, *options, "-m", module, str(folder), *arguments],
            {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(SOURCES)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                (os.POSIX_SPAWN_DUP2, lock, LOCK),
                *given,
            ],
            setsid=True,
            setsigmask=[],
        )
    finally:
        os.close(log)


def open_log(folder: Path) -> int:
    return os.open(folder / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
