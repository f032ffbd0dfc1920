"""The programs by which machines and commands start: `native/*.c`, prebuilt for x86-64 and arm64.

Forking a supervisor or an agent, interpreters of many pages, costs several times as much as
spawning a process without a copy of it. But limits and users can't be set between a spawn and its
exec; so a program of two kilobytes is spawned, and does the rest. It needs nothing of the root file
system that it is in. As a machine's first process it can't be killed by what runs there, `kill -9
-1` included, and leaves no zombies of those that nobody else waits for.
"""

import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "native"
_MAY_BE_RUN = 0x10
"""MFD_EXEC, which older kernels imply and do not know."""


def start_program() -> bytes | None:
    """`native/start.c`; None if there is none for this processor."""
    return _program("start")


def sudo_program() -> bytes | None:
    """`native/sudo.c`; None if there is none for this processor."""
    return _program("sudo")


def become_words(
    uid: int | None, limits: Mapping[int, int], descriptors: Iterable[int]
) -> list[str]:
    """The words before a program and its arguments, whose first is its path: it gets these limits,
    this user, these descriptors and the standard streams. It ends with this process, even if that
    has already ended, and with 127 if it can't be run."""
    user = "-" if uid is None else str(uid)
    pairs = (str(each) for limit in limits.items() for each in limit)
    kept = map(str, sorted({0, 1, 2, *descriptors}))
    return ["become", user, str(os.getpid()), *pairs, "--", *kept, "--"]


def unshare_words(namespaces: int, *, writer: int, reader: int) -> list[str]:
    """Enters new namespaces, writes a byte to one descriptor, and exits when the other is
    readable."""
    return ["unshare", str(namespaces), str(writer), str(reader)]


@contextmanager
def program_file(content: bytes) -> Iterator[str]:
    """The path of an in-memory file from which a child of this process can run the program. If the
    host forbids that, it is a PermissionError, here or on exec."""
    try:
        file = os.memfd_create("program", os.MFD_CLOEXEC | _MAY_BE_RUN)
    except PermissionError:
        raise
    except OSError:
        file = os.memfd_create("program")
    try:
        os.write(file, content)
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


@cache
def _program(name: str) -> bytes | None:
    try:
        return (_FOLDER / f"{name}.{platform.machine()}").read_bytes()
    except FileNotFoundError:
        return None
