"""Enters the namespaces of a sandbox from outside, and keeps no right there that its user lacks.

The calls are Linux's own; Python has no names for them.
"""

import ctypes
import fcntl
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from sandyard.runtime.local.host import processes
from sandyard.runtime.local.jail.sudo import install_sudo

_NAMESPACES = ("ipc", "uts", "net", "pid", "cgroup", "mnt")
_NS_GET_PARENT = 0xB702
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63
_SIGKILL = 9
_MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 2, 4, 32
_TCP_BUFFERS = {"tcp_rmem": "4096 131072 524288", "tcp_wmem": "4096 16384 524288"}

_ROOT_MAY = (0, 1, 3, 4, 5, 6, 7, 31)
"""CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETFCAP: for the sandbox's own files and
processes. Its mounts and its network belong to a namespace above."""

_libc = ctypes.CDLL(None, use_errno=True)


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


def enter(
    pid: int,
    *,
    identity: str | None,
    uid: int,
    seccomp: bytes | None,
    tmpfs: Mapping[str, str] | None = None,
    sudo: Mapping[str, bytes] | None = None,
) -> None:
    """Enter the namespaces of the process `pid` with this identity, as `uid` there. Children are in
    its pid namespace; this process stays in its own, invisible inside. `tmpfs` has options of
    in-memory folders there that bubblewrap can't set; `sudo`, if there is a root inside, the files
    by which its user becomes root."""
    opened = {name: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in _NAMESPACES}
    user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    # Programs inside can end that process, and another machine's may then reuse its pid.
    if identity is None or processes.identity(pid) != identity:
        raise ChildProcessError("the machine has gone")
    # bubblewrap nests two user namespaces; the outer one owns all the others.
    owner = fcntl.ioctl(user, _NS_GET_PARENT)
    if os.geteuid() == 0:
        os.setgroups([])
    _go_to({"owner": owner, **opened})
    for folder, options in (tmpfs or {}).items():
        flags = ctypes.c_ulong(_MS_REMOUNT | _MS_NOSUID | _MS_NODEV)
        _call("mount", b"tmpfs", folder.encode(), b"tmpfs", flags, options.encode())
    if sudo is not None:
        _become(0)
        install_sudo(sudo)
    _call("setns", user, 0)
    os.close(user)
    left = () if sudo is None else _ROOT_MAY
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in left:
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # an unknown one is no loss
    if sudo is None:
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if seccomp is not None:
        install_filter(seccomp)  # without the line above it needs a right that is dropped below
    _become(uid)
    keep_capabilities(left if uid == 0 else ())
    _prctl(_PR_SET_DUMPABLE, 0)


def _go_to(namespaces: Mapping[str, int]) -> None:
    for name, namespace in namespaces.items():
        _call("setns", namespace, 0)
        os.close(namespace)
        if name == "net":
            _limit_buffers()


def _limit_buffers() -> None:
    """Limit buffers of this network's connections, which the kernel otherwise grows to tens of
    megabytes."""
    for name, sizes in _TCP_BUFFERS.items():
        with suppress(OSError):  # the host mounts its settings read-only
            Path("/proc/sys/net/ipv4", name).write_text(sizes)


def _become(uid: int) -> None:
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def give_up_rights(uid: int | None) -> None:
    """Become this user, or stay the current one, with no rights beyond a user's. Other processes of
    that user can't inspect this one, which ends with its parent."""
    parent = os.getppid()
    if uid is not None:
        os.setgroups([])
        for capability in range(_LAST_CAPABILITY + 1):
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        _become(uid)
    keep_capabilities(())
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_DUMPABLE, 0)
    die_with_parent()
    if os.getppid() != parent:
        raise ChildProcessError("its parent has gone")


def keep_capabilities(kept: Iterable[int]) -> None:
    """Drop all others."""
    header = _Header(_CAPABILITY_VERSION_3, 0)
    sets = (_Sets * 2)()
    for capability in kept:
        sets[capability // 32].effective |= 1 << capability % 32
        sets[capability // 32].permitted |= 1 << capability % 32
    _call("capset", ctypes.byref(header), ctypes.byref(sets))


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


def _prctl(option: int, value: int, address: int = 0) -> None:
    _call("prctl", option, ctypes.c_ulong(value), ctypes.c_ulong(address), 0, 0)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
