"""A process with its group, to which signals are sent."""

import os
import select
import signal
from collections.abc import Container
from contextlib import suppress
from typing import Protocol

from sandyard.runtime.guest.channels import set_size
from sandyard.runtime.local.host import processes

_PROCESS_GROUP = 4
"""Signals the whole group of a pidfd's process; since Linux 6.9."""


class ProcessGroup:
    """The group led by the process `pid`, if its parent is one of these; else nothing."""

    def __init__(self, pid: int, *, parents: Container[int | None]) -> None:
        self._pid = pid
        self._descriptor = -1
        if not hasattr(os, "pidfd_open"):
            return
        with suppress(OSError, OverflowError, TypeError):  # it has ended, or never existed
            self._descriptor = os.pidfd_open(pid)
        # In this order: while it lives its pid is not reused, so the parent is its own.
        if self._descriptor >= 0 and not (processes.parent(pid) in parents and self._lives()):
            self.close()

    def signal(self, number: int) -> None:
        if not hasattr(os, "pidfd_open"):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)
        elif self._descriptor >= 0:
            with suppress(ProcessLookupError, PermissionError):
                self._send(number)

    def resize(self, terminal: int, columns: int, rows: int) -> None:
        set_size(terminal, columns, rows)

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


class Group(Protocol):
    """A process with its group, and its terminal if it has one."""

    def signal(self, number: int) -> None: ...

    def resize(self, terminal: int, columns: int, rows: int) -> None: ...

    def close(self) -> None: ...
