"""A mount namespace in which a sandbox's uid reaches what lies in folders of root alone."""

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

_CLONE_NEWNS = 0x00020000
NO_SUID, NO_DEV, _NO_EXEC = 2, 4, 8
_BIND = 4096
_DETACH = 2
_SLAVE_ALL_BELOW = 0x80000 | 0x4000
_MOUNT_POINTS = ("/media", "/mnt", "/srv", "/opt", "/home")


class MountNamespace:
    """Private to this process and its children.

    The data dir may be under /root, and bubblewrap looks paths up with the sandbox's rights.
    """

    def __init__(self, *, in_use: Iterable[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        used = [str(path.resolve()) + "/" for path in (*in_use, Path(sys.prefix), Path.cwd())]
        self._root = next(
            Path(point)
            for point in _MOUNT_POINTS
            if Path(point).is_dir() and not any(path.startswith(point + "/") for path in used)
        )
        self._bound: dict[Path, Path] = {}
        self._call("unshare", _CLONE_NEWNS)
        self.mount(None, Path("/"), None, _SLAVE_ALL_BELOW)
        flags = NO_SUID | NO_DEV | _NO_EXEC
        self.mount("tmpfs", self._root, "tmpfs", flags, "mode=755,size=64k,nr_inodes=64")

    def bind(self, source: Path) -> Path:
        """Another path to the source, one that everybody may walk."""
        if source in self._bound:
            return self._bound[source]
        bound = self._bound[source] = self._root / str(len(self._bound))
        if source.is_dir():
            bound.mkdir()
        else:
            bound.touch()
        self.mount(str(source), bound, None, _BIND)
        return bound

    def unmount(self, target: Path) -> None:
        self._call("umount2", str(target).encode(), _DETACH)

    def mount(
        self, source: str | None, target: Path, kind: str | None, flags: int, data: str = ""
    ) -> None:
        words = [None if word is None else word.encode() for word in (source, str(target), kind)]
        self._call("mount", *words, ctypes.c_ulong(flags), data.encode())

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._libc, name)(*arguments):
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")
