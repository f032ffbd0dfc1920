"""A handle of an agent's process, so that a signal reaches exactly it and its group.

The agent's word is a number: it may be a lie, or another process's by the time it is used.
"""

import os
import select
import signal
from collections.abc import Container
from contextlib import suppress

from sandyard.runtime.local import processes

_PROCESS_GROUP = 4
"""The kernel sends to the whole group of a descriptor's process, from 6.9 on."""


class ProcessGroup:
    """The group that the process `pid` leads, if its parent is one of these; else nothing."""

    def __init__(self, pid: int, *, parents: Container[int | None]) -> None:
        self._pid = pid
        self._descriptor = -1
        if not hasattr(os, "pidfd_open"):
            return
        with suppress(OSError, OverflowError, TypeError):  # it has ended, or never was
            self._descriptor = os.pidfd_open(pid)
        # In this order: while it lives its number is its own, and so its parent is.
        if self._descriptor >= 0 and not (processes.parent(pid) in parents and self._lives()):
            self.close()

    def signal(self, number: int) -> None:
        if not hasattr(os, "pidfd_open"):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)
        elif self._descriptor >= 0:
            with suppress(ProcessLookupError, PermissionError):
                self._send(number)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _send(self, number: int) -> None:
        try:
            signal.pidfd_send_signal(self._descriptor, number, None, _PROCESS_GROUP)
        except OSError as error:
            if isinstance(error, ProcessLookupError | PermissionError):
                raise
            if self._lives():  # an older kernel
                os.killpg(self._pid, number)

    def _lives(self) -> bool:
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLIN)
        return not waiting.poll(0)
