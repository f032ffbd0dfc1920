"""Enters the namespaces of a machine from outside, and keeps no right there that its user lacks."""

import ctypes
import fcntl
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from sandyard.runtime.local.agent.network import OpenedNetwork, open_network
from sandyard.runtime.local.host import processes, system_calls
from sandyard.runtime.local.host.system_calls import call

_NAMESPACES = ("ipc", "uts", "net", "pid", "cgroup", "mnt")
_NS_GET_PARENT = 0xB702
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 2, 4, 8, 32
_TERMINALS = "mode=620,ptmxmode=0666,max=64"
"""Options of `/dev/pts`. All terminals of the host have one limit, of a few thousand."""
_TCP_BUFFERS = {"tcp_rmem": "4096 131072 524288", "tcp_wmem": "4096 16384 524288"}
_SUDO_SIZE = "mode=755,size=64k,nr_inodes=8"

_ROOT_MAY = (0, 1, 3, 4, 5, 6, 7, 31)
"""CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETFCAP: for the sandbox's own files and
processes. Its mounts and its network belong to a namespace above."""

SudoFiles = Mapping[str, tuple[bytes, int]]
"""The content and mode of each file, by path; all are in one folder."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A machine to enter, by the process `pid` in it that has this identity, and as whom."""

    pid: int
    identity: str | None
    uid: int
    seccomp: bytes | None
    tmpfs: Mapping[str, str]
    """Mount options of in-memory folders there."""
    sudo: SudoFiles | None
    """The files by which its user becomes root; None if it has no root."""


def enter(entry: Entry) -> OpenedNetwork:
    """Children are then in the machine's pid namespace; this process stays in its own, invisible
    inside."""
    pid, sudo = entry.pid, entry.sudo
    opened = {name: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in _NAMESPACES}
    user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    # Programs inside can end that process, and another machine's may then reuse its pid.
    if entry.identity is None or processes.identity(pid) != entry.identity:
        raise ChildProcessError("the machine has gone")
    # bubblewrap nests two user namespaces; the outer one owns all the others.
    owner = fcntl.ioctl(user, _NS_GET_PARENT)
    if os.geteuid() == 0:
        os.setgroups([])
    network = _go_to({"owner": owner, **opened})
    for folder, options in entry.tmpfs.items():
        _remount("tmpfs", folder, _MS_NODEV, options)
    _remount("devpts", "/dev/pts", _MS_NOEXEC, _TERMINALS)
    if sudo is not None:
        system_calls.become(0)
        _install_sudo(sudo)
    call("setns", user, 0)
    os.close(user)
    left = () if sudo is None else _ROOT_MAY
    system_calls.limit_capabilities(left)
    if sudo is None:
        system_calls.gain_no_rights()
    if entry.seccomp is not None:
        # Without the line above it needs a right that is dropped below.
        system_calls.install_filter(entry.seccomp)
    system_calls.become(entry.uid)
    system_calls.keep_capabilities(left if entry.uid == 0 else ())
    system_calls.hide_from_others()
    return network


def _go_to(namespaces: Mapping[str, int]) -> OpenedNetwork:
    network = OpenedNetwork()
    for name, namespace in namespaces.items():
        call("setns", namespace, 0)
        os.close(namespace)
        if name == "net":
            _limit_buffers()
            network = open_network()
    return network


def _remount(kind: str, folder: str, flags: int, options: str) -> None:
    """bubblewrap can't set these options."""
    flags |= _MS_REMOUNT | _MS_NOSUID
    call(
        "mount",
        kind.encode(),
        folder.encode(),
        kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )


def _limit_buffers() -> None:
    """Limit buffers of this network's connections, which the kernel otherwise grows to tens of
    megabytes."""
    for name, sizes in _TCP_BUFFERS.items():
        # The host may mount its settings read-only.
        with suppress(OSError), open(f"/proc/sys/net/ipv4/{name}", "w") as setting:
            setting.write(sizes)


def _install_sudo(files: SudoFiles) -> None:
    """As root of the namespace that owns the machine's mounts; does nothing if it is installed."""
    folder = os.path.dirname(next(iter(files), ""))
    if not files or os.path.ismount(folder):
        return
    flags = ctypes.c_ulong(_MS_NODEV)
    call("mount", b"tmpfs", folder.encode(), b"tmpfs", flags, _SUDO_SIZE.encode())
    for path, (content, mode) in files.items():
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)
