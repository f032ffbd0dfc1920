"""Programs of a few instructions, which need nothing of the environment that they are in."""

import struct

BASE = 0x400000
"""Where the file is in memory."""
HEADER_BYTES = 64 + 56
_EXECUTABLE = 2
_READ_AND_EXECUTE = 5


def elf_file(machine: int, content: bytes) -> bytes:
    """An ELF file of one segment, which begins at the first byte of `content`; that one is at
    `BASE + HEADER_BYTES`. `machine` is the number of the processor's family."""
    size = HEADER_BYTES + len(content)
    entry = BASE + HEADER_BYTES
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    kinds = (_EXECUTABLE, machine, 1)
    header = struct.pack("<HHIQQQIHHHHHH", *kinds, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = (1, _READ_AND_EXECUTE, 0, BASE, BASE, size, size, 0x1000)
    return identity + header + struct.pack("<IIQQQQQQ", *segment) + content
