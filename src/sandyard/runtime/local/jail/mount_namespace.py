"""A mount namespace in which a sandbox's uid can reach folders that only root can enter."""

import ctypes
import os
import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandyard.runtime.local.host.system_calls import call

_CLONE_NEWNS = 0x00020000
READ_ONLY, NO_SUID, NO_DEV, _NO_EXEC = 1, 2, 4, 8
BIND = 4096
_DETACH = 2
_SLAVE_ALL_BELOW = 0x80000 | 0x4000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_HERE, _CLONE, _CLOSE_ON_EXEC, _EMPTY_PATH, _FROM_EMPTY_PATH = -100, 1, 0x80000, 0x1000, 4
_SHIFTED, _SHIFTED_READ_ONLY = 0x100000, 0x100000 | 1
_MOUNT_POINTS = ("/media", "/mnt", "/srv", "/opt", "/home")


class MountNamespace:
    """Private to this process and its children.

    The data dir may be under /root, and bubblewrap resolves paths with the sandbox's rights.
    """

    def __init__(self, *, in_use: Iterable[Path]) -> None:
        used = [str(path.resolve()) + "/" for path in (*in_use, Path(sys.prefix), Path.cwd())]
        self._root = next(
            Path(point)
            for point in _MOUNT_POINTS
            if Path(point).is_dir() and not any(path.startswith(point + "/") for path in used)
        )
        self._bound: dict[Path, Path] = {}
        self._places = 0
        call("unshare", _CLONE_NEWNS)
        self.mount(None, Path("/"), None, _SLAVE_ALL_BELOW)
        flags = NO_SUID | NO_DEV | _NO_EXEC
        self.mount("tmpfs", self._root, "tmpfs", flags, "mode=755,size=64k,nr_inodes=64")

    def bind(self, source: Path) -> Path:
        """Another path to the source, which everyone may traverse."""
        if source in self._bound:
            return self._bound[source]
        bound = self._bound[source] = self._root / str(len(self._bound))
        if source.is_dir():
            bound.mkdir()
        else:
            bound.touch()
        self.mount(str(source), bound, None, BIND)
        return bound

    def shifted(self, source: Path, user_namespace: int, *, is_read_only: bool = True) -> Path:
        """The same folder with the ids of its files mapped by that user namespace. Raises OSError
        if the file system does not support that."""
        at = self._place()
        clone = call("syscall", _OPEN_TREE, _HERE, bytes(source), _CLONE | _CLOSE_ON_EXEC)
        try:
            attribute = _SHIFTED_READ_ONLY if is_read_only else _SHIFTED
            attributes = struct.pack("QQQQ", attribute, 0, 0, user_namespace)
            size = len(attributes)
            call("syscall", _MOUNT_SETATTR, clone, b"", _EMPTY_PATH, attributes, size)
            call("syscall", _MOVE_MOUNT, clone, b"", _HERE, bytes(at), _FROM_EMPTY_PATH)
        finally:
            os.close(clone)
        return at

    def overlay(self, below: Sequence[Path], *, upper: Path, work: Path) -> Path:
        """An overlay of these folders, the first on top, with changes in `upper`."""
        at = self._place()
        lower = ":".join(map(str, below))
        # Colons and commas in these paths would be parsed as more paths or options.
        top = self.bind(upper.parent)
        options = f"lowerdir={lower},upperdir={top / upper.name},workdir={top / work.name}"
        self.mount("overlay", at, "overlay", NO_SUID | NO_DEV, f"{options},userxattr")
        return at

    def _place(self) -> Path:
        place = self._root / f"p{self._places}"
        self._places += 1
        place.mkdir()
        return place

    def unmount(self, target: Path) -> None:
        call("umount2", str(target).encode(), _DETACH)

    def mount(
        self, source: str | None, target: Path, kind: str | None, flags: int, data: str = ""
    ) -> None:
        words = [None if word is None else word.encode() for word in (source, str(target), kind)]
        call("mount", *words, ctypes.c_ulong(flags), data.encode())
