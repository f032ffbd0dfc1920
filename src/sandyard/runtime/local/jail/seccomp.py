"""The system calls that a sandbox does without, as a filter for bubblewrap.

It refuses what would bypass the limits (memory that belongs to no process and to no file, choice of
processors) and kernel calls that programs here have no use for. Calls that programs try and can do
without, such as a database's asynchronous I/O, fail as on a kernel that lacks them: ENOSYS.
"""

import errno
import platform
import struct
from dataclasses import dataclass

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT, _THIRD_ARGUMENT_AT = 16, 24, 32
_X32_BIT = 0x40000000
_ORDINARY_POLICY = 0
_OF_SOCKETS, _SEND_BUFFER, _RECEIVE_BUFFER = 1, 7, 8
_SET_PIPE_SIZE = 1031

# AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK. Others, such as AF_VSOCK, have no network namespace.
_SOCKET_FAMILIES = (1, 2, 10, 16)


@dataclass(frozen=True, slots=True)
class _Machine:
    architecture: int
    socket: int
    missing: tuple[int, ...]
    """memfd_create memfd_secret shmget msgget semget io_uring_setup add_key request_key keyctl
    bpf perf_event_open userfaultfd io_setup vmsplice"""
    forbidden: tuple[int, ...]
    """sched_setaffinity sched_setattr"""
    scheduler: int
    """sched_setscheduler, allowed only for the ordinary policy: ZeroMQ asks for that, and gives up
    if it is refused."""
    set_option: int
    """setsockopt, which can't enlarge a buffer: such a call succeeds without effect, as the kernel
    itself gives less than requested."""
    control: int
    """fcntl, which can't enlarge a pipe."""


_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        41,
        (319, 447, 29, 68, 64, 425, 248, 249, 250, 321, 298, 323, 206, 278),
        (203, 314),
        144,
        54,
        72,
    ),
    "aarch64": _Machine(
        0xC00000B7,
        198,
        (279, 447, 194, 186, 190, 425, 217, 218, 219, 280, 241, 282, 0, 75),
        (122, 274),
        119,
        208,
        25,
    ),
}


def program() -> bytes | None:
    """The filter for this host, or None if its system call numbers are not known."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return None
    code = [_step(_LOAD, _ARCHITECTURE_AT)]
    code += [_step(_JUMP_EQUAL, machine.architecture, 1, 0), _refuse(errno.ENOSYS)]
    code += [_step(_LOAD, _NUMBER_AT)]
    code += [_step(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _refuse(errno.ENOSYS)]
    for number in machine.missing:
        code += [_step(_JUMP_EQUAL, number, 0, 1), _refuse(errno.ENOSYS)]
    for number in machine.forbidden:
        code += [_step(_JUMP_EQUAL, number, 0, 1), _refuse(errno.EPERM)]
    code += [_step(_JUMP_EQUAL, machine.scheduler, 0, 4), _step(_LOAD, _SECOND_ARGUMENT_AT)]
    code += [_step(_JUMP_EQUAL, _ORDINARY_POLICY, 0, 1), _step(_RETURN, _ALLOW)]
    code += [_refuse(errno.EPERM)]
    code += _limit_buffers(machine)
    code += [_step(_JUMP_EQUAL, machine.socket, 1, 0), _step(_RETURN, _ALLOW)]
    code += [_step(_LOAD, _FIRST_ARGUMENT_AT)]
    for family in _SOCKET_FAMILIES:
        code += [_step(_JUMP_EQUAL, family, 0, 1), _step(_RETURN, _ALLOW)]
    return b"".join([*code, _refuse(errno.EAFNOSUPPORT)])


def _limit_buffers(machine: _Machine) -> list[bytes]:
    code = [_step(_JUMP_EQUAL, machine.control, 0, 4), _step(_LOAD, _SECOND_ARGUMENT_AT)]
    code += [_step(_JUMP_EQUAL, _SET_PIPE_SIZE, 0, 1), _refuse(errno.EPERM)]
    code += [_step(_RETURN, _ALLOW)]
    code += [_step(_JUMP_EQUAL, machine.set_option, 0, 7), _step(_LOAD, _SECOND_ARGUMENT_AT)]
    code += [_step(_JUMP_EQUAL, _OF_SOCKETS, 0, 4), _step(_LOAD, _THIRD_ARGUMENT_AT)]
    code += [_step(_JUMP_EQUAL, _SEND_BUFFER, 1, 0), _step(_JUMP_EQUAL, _RECEIVE_BUFFER, 0, 1)]
    return [*code, _refuse(0), _step(_RETURN, _ALLOW)]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)
