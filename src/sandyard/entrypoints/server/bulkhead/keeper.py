"""Forks the tenants' process, and forks it again when it has died.

The keeper is a small process between the two: it has no threads, so it can fork at any time, and
all that both processes import is imported once, before it is made. When the main process dies, the
kernel kills the keeper, and with it the tenants' process.
"""

import logging
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from sandyard.entrypoints.server.bulkhead.channel import DOWN, drop_calls, new_pair
from sandyard.runtime.local.host.system_calls import die_with_parent

logger = logging.getLogger(__name__)

_PAUSES_SEC = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
_STABLE_SEC = 60.0
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Serve = Callable[[socket.socket, Callable[[], None]], None]
"""Serves the tenants' parts with its end of the channel; calls the function when it is up."""


@dataclass(frozen=True, slots=True)
class Keeper:
    pid: int
    end: socket.socket
    """The main process's end of the channel."""

    def wait(self) -> int:
        """Its exit code, which is that of the tenants' process."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def fork_keeper(serve: Serve) -> Keeper:
    """Call it before there are threads. Returns in the main process only."""
    ours, theirs = new_pair()
    main = os.getpid()
    pid = os.fork()
    if not pid:
        ours.close()
        _die_with(main)
        _keep(serve, theirs)
    theirs.close()
    return Keeper(pid, ours)


def _keep(serve: Serve, end: socket.socket) -> NoReturn:
    """Ends with the tenants' process if that ends by itself, or could not start at all."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    was_up, died = mmap.mmap(-1, 1), 0
    while True:
        began, keeper = time.monotonic(), os.getpid()
        pid = os.fork()
        if not pid:
            _die_with(keeper)
            for number in _IGNORED:
                signal.signal(number, signal.SIG_DFL)
            serve(end, lambda: was_up.__setitem__(0, 1))
            _exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == 0 or (code > 0 and not was_up[0]):
            _exit(code)
        died = 0 if time.monotonic() - began > _STABLE_SEC else died
        pause_sec = _PAUSES_SEC[min(died, len(_PAUSES_SEC) - 1)]
        died += 1
        logger.error(
            "the tenants' process ended, and is started again",
            extra={"action": "restart", "exit_code": code, "wait_sec": pause_sec},
        )
        end.send(DOWN)
        drop_calls(end)
        time.sleep(pause_sec)


def _die_with(parent: int) -> None:
    die_with_parent()
    if os.getppid() != parent:  # it died before
        _exit(1)


def _exit(code: int) -> NoReturn:
    """Without what the main process does at its end."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
