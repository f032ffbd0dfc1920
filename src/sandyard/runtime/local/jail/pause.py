"""The first program of a machine: it waits, and needs nothing of the environment that it is in.

A machine lives as long as this does. It is an ELF file of one segment with a few instructions, so
that a root file system without a shell or any library can be a machine too. As a machine's process
1 it can't be killed by what runs there, `kill -9 -1` included, and leaves no zombies of those that
nobody else waits for.
"""

import platform
import struct

from sandyard.runtime.local.jail.elf import BASE, HEADER_BYTES, elf_file

_X86_64 = 62
_AARCH64 = 183
_SIG_IGN, _SA_NOCLDWAIT = 1, 2
_FOREVER = bytes.fromhex("b8220000000f05ebf7")
"""mov eax, 34 (pause); syscall; jmp to the begin"""
_FOREVER_AARCH64 = bytes.fromhex("000080d2010080d2020080d2030080d2280980d2010000d4faffff17")
"""mov x0..x3, 0; mov x8, 73 (ppoll); svc 0; b to the begin"""


def program() -> bytes | None:
    """The program for this host, or None if its processor is not supported."""
    match platform.machine():
        case "x86_64":
            return elf_file(_X86_64, _reaping())
        case "aarch64":
            return elf_file(_AARCH64, _FOREVER_AARCH64)
        case _:
            return None


def may_be_first() -> bool:
    """Whether the program is fit to be process 1."""
    return platform.machine() == "x86_64"


def _reaping() -> bytes:
    """Wait forever, after asking the kernel to reap its children."""
    behind = len(_ignore_children(0) + _FOREVER)
    data = struct.pack("<QQQQ", _SIG_IGN, _SA_NOCLDWAIT, 0, 0)
    return _ignore_children(BASE + HEADER_BYTES + behind) + _FOREVER + data


def _ignore_children(action_at: int) -> bytes:
    """mov edi, 17 (SIGCHLD); mov esi, action_at; mov edx, 0; mov r10d, 8;
    mov eax, 13 (rt_sigaction); syscall"""
    return struct.pack(
        "<BIBIBIHIBIH",
        *(0xBF, 17, 0xBE, action_at, 0xBA, 0, 0xBA41, 8, 0xB8, 13, 0x050F),
    )
