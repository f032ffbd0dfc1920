"""Programs of Python that are forked from a process which has imported Sandyard: importing it takes
longer than most of what tests do with it. A process of its own otherwise, with nothing shared."""

import atexit
import gc
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

_ROOT = Path(__file__).parents[3]
_STATUS_BYTES = 4
_MOST_BYTES = 1 << 17
_NOT_IMPORTED = (".__main__", ".parquet")
"""A program, and what starts threads."""
_READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "PROMETHEUS_")
"""Beginnings of variables that the interpreter and some modules read once, when they are loaded."""


def can_fork(environment: Mapping[str, str]) -> bool:
    return not any(name.startswith(_READ_AT_START) for name in environment)


class ForkedProcess(subprocess.Popen[Any]):
    """`python -m MODULE ARGUMENT…`, used like the one of `subprocess`."""

    _status: int

    def _execute_child(self, words: list[str], *more: Any) -> None:
        cwd, environment = more[4:6]
        ends = p2cread, _, _, c2pwrite, _, errwrite = more[9:15]
        order = {"words": words, "cwd": os.fspath(cwd or Path.cwd()), "environment": environment}
        self._status, reported = os.pipe()
        streams = [
            number if given == -1 else given
            for number, given in enumerate((p2cread, c2pwrite, errwrite))
        ]
        try:
            with _lock:
                socket.send_fds(_fork_server(), [json.dumps(order).encode()], [*streams, reported])
        finally:
            os.close(reported)
        self.pid = _number(os.read(self._status, _STATUS_BYTES))
        self._child_created = True
        cast("Any", self)._close_pipe_fds(*ends)

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        status = _number(os.read(self._status, _STATUS_BYTES))
        os.close(self._status)
        return self.pid, status

    def _internal_poll(self, **_options: object) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self.returncode = os.waitstatus_to_exitcode(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode

    _waitpid_lock: threading.Lock


def _number(content: bytes) -> int:
    assert len(content) == _STATUS_BYTES, "the fork server has ended"
    return int.from_bytes(content, "little", signed=True)


_lock = threading.Lock()


@cache
def _fork_server() -> socket.socket:
    """One for this process, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=_ROOT,
        )

    def stop() -> None:
        ours.close()
        server.wait()

    atexit.register(stop)
    return ours


def _serve(orders: socket.socket) -> dict[str, Any]:
    """Forks for each order; returns the order in the child alone."""
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([orders.fileno(), *running], [], [])[0]:
            if ready in running:
                _report(ready, *running.pop(ready))
                continue
            content, files, _, _ = socket.recv_fds(orders, _MOST_BYTES, 4)
            if not content:
                os._exit(0)
            *streams, report = files
            pid = os.fork()
            if not pid:
                _become(streams)
                order: dict[str, Any] = json.loads(content)
                return order
            for each in streams:
                os.close(each)
            os.write(report, pid.to_bytes(_STATUS_BYTES, "little", signed=True))
            running[os.pidfd_open(pid)] = pid, report


def _report(ended: int, pid: int, report: int) -> None:
    os.close(ended)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(report, status.to_bytes(_STATUS_BYTES, "little", signed=True))
    os.close(report)


def _become(streams: list[int]) -> None:
    """Have these as standard streams, and no other descriptor."""
    for number, each in enumerate(streams):
        os.dup2(each, number)
    os.closerange(3, 1 << 16)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _run(order: Mapping[str, Any]) -> None:
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    sys.orig_argv = order["words"]
    _, _, module, *arguments = order["words"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _import_sandyard() -> None:
    """What servers and commands import, and a bit more."""
    import pkgutil
    from importlib import import_module

    import sandyard

    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type] # as `serve` does
    for module in pkgutil.walk_packages(sandyard.__path__, "sandyard."):
        if not module.name.endswith(_NOT_IMPORTED):
            import_module(module.name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    given = socket.socket(fileno=int(sys.argv[1]))
    _import_sandyard()
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads must not be forked"  # noqa: PTH208
    _run(_serve(given))
