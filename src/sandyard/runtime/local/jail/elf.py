"""Programs of a few instructions that depend on nothing in their environment."""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

BASE = 0x400000
"""The address at which the file is loaded."""
HEADER_BYTES = 64 + 56
_EXECUTABLE = 2
_READ_AND_EXECUTE = 5
_MAY_BE_RUN = 0x10
"""MFD_EXEC, which older kernels imply and do not know."""


def elf_file(machine: int, content: bytes) -> bytes:
    """An ELF file of one segment. Execution starts at the first byte of `content`, which is at
    `BASE + HEADER_BYTES`. `machine` is the number of the processor's family."""
    size = HEADER_BYTES + len(content)
    entry = BASE + HEADER_BYTES
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    kinds = (_EXECUTABLE, machine, 1)
    header = struct.pack("<HHIQQQIHHHHHH", *kinds, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = (1, _READ_AND_EXECUTE, 0, BASE, BASE, size, size, 0x1000)
    return identity + header + struct.pack("<IIQQQQQQ", *segment) + content


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
