"""The first program of a machine: it waits, and needs nothing of the environment that it is in.

A machine lives as long as this does. It is an ELF file of one segment with a few instructions, so
that a root file system without a shell or any library can be a machine too.
"""

import platform

from sandyard.runtime.local.elf import elf_file

_MACHINES = {
    # mov eax, 34 (pause); syscall; jmp to the begin
    "x86_64": (62, bytes.fromhex("b8220000000f05ebf7")),
    # mov x0..x3, 0; mov x8, 73 (ppoll); svc 0; b to the begin
    "aarch64": (183, bytes.fromhex("000080d2010080d2020080d2030080d2280980d2010000d4faffff17")),
}


def program() -> bytes | None:
    """The file for this machine, or None where its instructions are not known."""
    known = _MACHINES.get(platform.machine())
    return None if known is None else elf_file(*known)
