"""Where root shows a sandbox's uid what lies in folders that only root may enter."""

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_NO_SUID_DEV_EXEC = 2 | 4 | 8
_BIND = 4096
_SLAVE_ALL_BELOW = 0x80000 | 0x4000
_STAGES = ("/media", "/mnt", "/srv", "/opt", "/home")


class Stage:
    """A private view of the file system, for this process and its children.

    The data dir may be under /root, and bubblewrap looks paths up with the sandbox's rights.
    """

    def __init__(self, *, needed: Iterable[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        in_use = [str(path.resolve()) + "/" for path in (*needed, Path(sys.prefix), Path.cwd())]
        self._root = next(
            Path(stage)
            for stage in _STAGES
            if Path(stage).is_dir() and not any(path.startswith(stage + "/") for path in in_use)
        )
        self._shown: dict[Path, Path] = {}
        self._do("unshare", _CLONE_NEWNS)
        self._mount(None, Path("/"), None, _SLAVE_ALL_BELOW)
        self._mount("tmpfs", self._root, "tmpfs", _NO_SUID_DEV_EXEC, "mode=755,size=64k")

    def show(self, source: Path) -> Path:
        """Another path to the source, one that everybody may walk."""
        if source in self._shown:
            return self._shown[source]
        shown = self._shown[source] = self._root / str(len(self._shown))
        if source.is_dir():
            shown.mkdir()
        else:
            shown.touch()
        self._mount(str(source), shown, None, _BIND)
        return shown

    def _mount(
        self, source: str | None, target: Path, kind: str | None, flags: int, data: str = ""
    ) -> None:
        words = [None if word is None else word.encode() for word in (source, str(target), kind)]
        self._do("mount", *words, ctypes.c_ulong(flags), data.encode())

    def _do(self, name: str, *arguments: object) -> None:
        if getattr(self._libc, name)(*arguments):
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")
