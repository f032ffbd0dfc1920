"""Calls of Linux's that Python has no names for."""

import ctypes
import os
from collections.abc import Container, Iterable
from contextlib import suppress

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63
_SIGKILL = 9


def call(name: str, *arguments: object) -> int:
    """A function of the C library, or by its number a system call. Raises OSError."""
    result = int(getattr(_libc, name)(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def become(uid: int) -> None:
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def give_up_rights(uid: int | None) -> None:
    """Become this user, or stay the current one, with no rights beyond a user's. Other processes of
    that user can't inspect this one, which ends with its parent."""
    parent = os.getppid()
    if uid is not None:
        os.setgroups([])
        limit_capabilities(())
        become(uid)
    keep_capabilities(())
    gain_no_rights()
    hide_from_others()
    die_with_parent()
    if os.getppid() != parent:
        raise ChildProcessError("its parent has gone")


def keep_capabilities(capabilities: Iterable[int]) -> None:
    """Drop all others."""
    header = _Header(_CAPABILITY_VERSION_3, 0)
    sets = (_Sets * 2)()
    for capability in capabilities:
        sets[capability // 32].effective |= 1 << capability % 32
        sets[capability // 32].permitted |= 1 << capability % 32
    call("capset", ctypes.byref(header), ctypes.byref(sets))


def install_filter(program: bytes) -> None:
    """For this process and its descendants."""
    steps = ctypes.create_string_buffer(program, len(program))
    listed = _Filter(len(program) // 8, ctypes.cast(steps, ctypes.c_char_p))
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(listed))


def die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that none escapes."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def limit_capabilities(allowed: Container[int]) -> None:
    """Neither this process nor its descendants ever get others, whatever they execute."""
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in allowed:
            with suppress(OSError):  # an unknown one is no loss
                call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)


def gain_no_rights() -> None:
    """No program that this process or its descendants execute has more rights than they."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def hide_from_others() -> None:
    """Other processes of the same user can't inspect this one."""
    _prctl(_PR_SET_DUMPABLE, 0)


def close_all_but(*descriptors: int) -> None:
    """The supervisor's descriptors must not reach the machine."""
    below = 0
    for descriptor in sorted(set(descriptors)):
        if below < descriptor:  # with an empty range the call would close all
            os.closerange(below, descriptor)
        below = descriptor + 1
    os.closerange(below, 1 << 20)


def _prctl(option: int, value: int, address: int = 0) -> None:
    call("prctl", option, ctypes.c_ulong(value), ctypes.c_ulong(address), 0, 0)
