"""The program that becomes a command: it sets the command's limits on itself, then execs it.

Forking the agent, an interpreter of many pages, costs several times as much as spawning a process
without a copy of it. But limits can't be set between a spawn and its exec; so this file of some
hundred bytes is spawned, and does the rest: `launch FOLDER PROGRAM WORD…`, with the first word as
the command's own name. Failures are written to descriptor 3.

Its file must not be readable where it runs: the kernel then prevents tracing, by which others could
take it over before its limits are set.
"""

import errno
import os
import platform
import resource
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from sandyard.runtime.local.jail.elf import BASE, HEADER_BYTES, elf_file

FAILURE_AT = 3
"""The descriptor for failures; it is closed when the command runs."""
FAILURE_BYTES = 16
NICE = 5
Step = Literal["limits", "folder", "program"]
_STEPS: tuple[Step, ...] = ("limits", "folder", "program")
_HIGHEST_ERRNO = 4095

_X86_64 = 62
_READ, _WRITE, _IOCTL, _EXECVE, _EXIT, _FCNTL, _CHDIR = 0, 1, 16, 59, 60, 72, 80
_SETSID, _SETPRIORITY, _PRLIMIT = 112, 141, 302
_SETGROUPS, _SETRESUID, _SETRESGID, _UNSHARE, _CLOSE_RANGE = 116, 117, 119, 272, 436
_PRCTL, _GETPPID, _PDEATHSIG, _SIGKILL = 157, 110, 1, 9
_NO_DESCRIPTOR = 0xFFFFFFFF
_F_SETFD, _FD_CLOEXEC, _TIOCSCTTY = 2, 1, 0x540E
_MOV_EDI, _MOV_ESI, _MOV_EDX, _MOV_R10D, _MOV_EAX = b"\xbf", b"\xbe", b"\xba", b"\x41\xba", b"\xb8"
_MOV_R12D = b"\x41\xbc"
_SYSCALL = b"\x0f\x05"
_STACK_TO_RBX = b"\x48\x89\xe3"
_FOLDER_TO_RDI = b"\x48\x8b\x7b\x10"  # mov rdi, [rbx + 16]: the first argument
_PROGRAM_TO_RDI = b"\x48\x8b\x7b\x18"  # mov rdi, [rbx + 24]: the second
_FIRST_TO_RSI = b"\x48\x8d\x73\x10"  # lea rsi, [rbx + 16]: from the first on
_WORDS_TO_RSI = b"\x48\x8d\x73\x20"  # lea rsi, [rbx + 32]: from the third on
_VARIABLES_TO_RDX = b"\x48\x8b\x0b\x48\x8d\x54\xcb\x10"  # lea rdx, [rbx + argc * 8 + 16]
_IF_FAILED = b"\x48\x85\xc0\x0f\x88"  # test rax, rax; js
_IF_NOT, _JUMP_IF_NOT = b"\x3d", b"\x0f\x85"  # cmp eax, …; jne
_PUSH_R12_AND_RAX = b"\x41\x54\x50"
_STACK_TO_RSI = b"\x48\x89\xe6"


class Failure(NamedTuple):
    """The step that failed, and its error."""

    step: Step
    errno: int


def program(rlimits: Mapping[str, int]) -> bytes | None:
    """The launcher for this host, which sets these limits; None if the processor is unsupported."""
    return elf_file(_X86_64, _content(rlimits)) if platform.machine() == "x86_64" else None


def becoming(
    uid: int | None, limits: Mapping[int, int], descriptors: Iterable[int]
) -> bytes | None:
    """`become PROGRAM WORD…`: sets these limits, becomes this user, and execs the program, whose
    first word is its path, with these descriptors and the standard streams. It ends with this
    process, even if that has already ended, and with 127 if the program can't be run."""
    if platform.machine() != "x86_64":
        return None
    kept = sorted({0, 1, 2, *descriptors})
    behind = len(_becoming(uid, limits, kept, 0))
    data = b"".join(struct.pack("<QQ", value, value) for value in limits.values())
    return elf_file(_X86_64, _becoming(uid, limits, kept, behind) + data)


def _becoming(
    uid: int | None, limits: Mapping[int, int], kept: Sequence[int], data_at: int
) -> bytes:
    data = BASE + HEADER_BYTES + data_at
    calls: list[tuple[int, ...]] = [
        (_PRLIMIT, 0, number, data + 16 * at, 0) for at, number in enumerate(limits)
    ]
    if uid is not None:
        calls += [(_SETGROUPS, 0, 0), (_SETRESGID, uid, uid, uid), (_SETRESUID, uid, uid, uid)]
    code, ways_out = _STACK_TO_RBX, list[int]()
    calls.append((_PRCTL, _PDEATHSIG, _SIGKILL))  # after the calls that reset it
    for each in calls:
        code = _leave(code + _call(*each), ways_out)
    code = _leave(code + _call(_GETPPID), ways_out, if_=_IF_NOT + struct.pack("<I", os.getpid()))
    for last, following in zip(kept, (*kept[1:], _NO_DESCRIPTOR), strict=True):
        if last + 1 < following:  # otherwise there are none between them
            code += _call(_CLOSE_RANGE, last + 1, following - 1, 0)
    code += _FOLDER_TO_RDI + _FIRST_TO_RSI + _VARIABLES_TO_RDX + _call(_EXECVE)
    return _joined(code + _call(_EXIT, 127), ways_out, len(code))


def unsharing(namespaces: int, *, telling: int, heard: int) -> bytes | None:
    """A program that enters new namespaces, writes a byte to one descriptor, and exits when the
    other is readable."""
    if platform.machine() != "x86_64":
        return None
    ways_out: list[int] = []
    code = _leave(_call(_UNSHARE, namespaces), ways_out)
    code += _STACK_TO_RSI + _call(_WRITE, telling, None, 1)
    code += _STACK_TO_RSI + _call(_READ, heard, None, 1) + _call(_EXIT, 0)
    return elf_file(_X86_64, _joined(code + _call(_EXIT, 1), ways_out, len(code)))


def parse_failure(report: bytes) -> Failure:
    """Any process of the machine may have written it."""
    if len(report) != FAILURE_BYTES:
        return Failure("program", errno.EPERM)
    code, step = struct.unpack("<qq", report)
    known: Step = _STEPS[step] if 0 <= step < len(_STEPS) else "program"
    return Failure(known, max(0, min(-code, _HIGHEST_ERRNO)))


def format_failure(step: Step, number: int) -> bytes:
    """In the launcher's own format."""
    return struct.pack("<qq", -number, _STEPS.index(step))


def hard_limits(rlimits: Mapping[str, int]) -> dict[int, int]:
    """The limits by number, capped at what this process may set."""
    chosen: dict[int, int] = {}
    for name, value in rlimits.items():
        number: int = getattr(resource, name)
        hardest = resource.getrlimit(number)[1]
        chosen[number] = value if hardest == resource.RLIM_INFINITY else min(value, hardest)
    return chosen


def _content(rlimits: Mapping[str, int]) -> bytes:
    """Generates the instructions twice: their data follows them, at an offset known only then."""
    limits = hard_limits(rlimits)
    behind = len(_instructions(limits, 0))
    data = b"".join(struct.pack("<QQ", value, value) for value in limits.values())
    return _instructions(limits, behind) + data


def _instructions(limits: Mapping[int, int], data_at: int) -> bytes:
    data = BASE + HEADER_BYTES + data_at
    code = _STACK_TO_RBX + _call(_FCNTL, FAILURE_AT, _F_SETFD, _FD_CLOEXEC) + _call(_SETSID)
    code += _call(_IOCTL, 0, _TIOCSCTTY, 0)  # refused unless its input is a terminal
    code += _call(_SETPRIORITY, 0, 0, NICE)
    ways_out: list[int] = []
    for place, number in enumerate(limits):
        code += _set(_MOV_R12D, 0) + _call(_PRLIMIT, 0, number, data + 16 * place, 0)
        code = _leave(code, ways_out)
    code += _set(_MOV_R12D, 1) + _FOLDER_TO_RDI + _call(_CHDIR)
    code = _leave(code, ways_out)
    code += _set(_MOV_R12D, 2) + _PROGRAM_TO_RDI + _WORDS_TO_RSI + _VARIABLES_TO_RDX
    code += _call(_EXECVE)
    failing_at = len(code)
    code += _PUSH_R12_AND_RAX + _STACK_TO_RSI + _call(_WRITE, FAILURE_AT, None, FAILURE_BYTES)
    return _joined(code + _call(_EXIT, 127), ways_out, failing_at)


def _call(number: int, *arguments: int | None) -> bytes:
    """A system call; None means that the register is already set."""
    registers = (_MOV_EDI, _MOV_ESI, _MOV_EDX, _MOV_R10D)
    given = zip(registers, arguments, strict=False)
    moves = b"".join(_set(register, value) for register, value in given if value is not None)
    return moves + _set(_MOV_EAX, number) + _SYSCALL


def _set(register: bytes, value: int) -> bytes:
    return register + struct.pack("<I", value)


def _leave(code: bytes, ways_out: list[int], *, if_: bytes = b"") -> bytes:
    """Jump to the failure report if the last call failed; the offset is filled in later."""
    code += (if_ + _JUMP_IF_NOT if if_ else _IF_FAILED) + bytes(4)
    ways_out.append(len(code))
    return code


def _joined(code: bytes, ways_out: list[int], target: int) -> bytes:
    for end in ways_out:
        code = code[: end - 4] + struct.pack("<i", target - end) + code[end:]
    return code
