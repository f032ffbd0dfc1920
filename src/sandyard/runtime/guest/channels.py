"""The pipes or the terminal of a process."""

import fcntl
import os
import struct
import termios
from typing import NamedTuple


class Channels(NamedTuple):
    """The ends of a process's input and output: its own, and ours to hand out."""

    inner: tuple[int, int, int]
    outer: tuple[int, ...]
    names: tuple[str, ...]
    is_terminal: bool

    def close_inner(self) -> None:
        for descriptor in set(self.inner):
            os.close(descriptor)


def open_pipes(*, has_input: bool, has_stderr: bool) -> Channels:
    """A program's output is one stream, so that its log keeps the order of writes."""
    if has_input:
        theirs_in, ours_in = os.pipe2(os.O_CLOEXEC)
    else:
        theirs_in, ours_in = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), -1
    ours_out, theirs_out = os.pipe2(os.O_CLOEXEC)
    ours_err, theirs_err = os.pipe2(os.O_CLOEXEC) if has_stderr else (-1, theirs_out)
    outer = {"stdin": ours_in, "stdout": ours_out, "stderr": ours_err}
    opened = {name: end for name, end in outer.items() if end >= 0}
    inner = (theirs_in, theirs_out, theirs_err)
    return Channels(inner, tuple(opened.values()), tuple(opened), is_terminal=False)


def open_terminal(columns: int, rows: int) -> Channels:
    ours, theirs = os.openpty()
    set_size(theirs, columns, rows)
    return Channels((theirs, theirs, theirs), (ours,), ("terminal",), is_terminal=True)


def set_size(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def take_terminal() -> None:
    """Make the standard input the controlling terminal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
