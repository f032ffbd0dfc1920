"""The storage that a workspace uses, measured from outside while a hostile program may change it.

Every step goes from an open folder to one of its entries and follows no link, so nothing that
the program renames or links in between leads out.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from sandyard.runtime.local.host import processes

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 200
_TOO_MUCH = 1 << 62
_LEAST_BYTES = 512


def used_bytes(workspace: Path, *, give_up_above: int | None = None) -> int:
    """The storage used by the files, with at least a little for each name.

    A tree that is nested too deeply counts as more than anyone may have.
    """
    seen: set[int] = set()
    frames = [_Frame(_open_root(workspace), seen)]
    total = frames[0].size
    try:
        while frames:
            if not frames[-1].folders:
                frames.pop().close()
                continue
            try:
                below = _enter_frame(frames[-1], seen)
            except OSError:
                continue
            frames.append(below)
            total += below.size
            if len(frames) > _DEEPEST:
                return _TOO_MUCH
            if give_up_above is not None and total > give_up_above:
                break
    finally:
        for frame in frames:
            frame.close()
    return total


class _Frame:
    """An open folder: the size of its own files, and the subfolders still to be entered."""

    def __init__(self, folder: int, seen: set[int], *, mode: int | None = None) -> None:
        self.folder = folder
        self._mode = mode
        self.size, self.folders = _measure(folder, seen)

    def close(self) -> None:
        if self._mode is not None:
            _set_mode(self.folder, self._mode)
        os.close(self.folder)


def _enter_frame(frame: _Frame, seen: set[int]) -> _Frame:
    """The next folder. One that its owner may not read is opened too, so that nothing is hidden
    there. Its mode is changed until the frame is closed."""
    name = frame.folders.pop()
    try:
        return _Frame(os.open(name, _FOLDER, dir_fd=frame.folder), seen)
    except PermissionError:
        path_only = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
        shut = os.open(name, path_only, dir_fd=frame.folder)
    try:
        mode = stat.S_IMODE(os.fstat(shut).st_mode)
        _set_mode(shut, mode | stat.S_IRWXU)
        return _Frame(os.open(f"/proc/self/fd/{shut}", _FOLDER & ~os.O_NOFOLLOW), seen, mode=mode)
    finally:
        os.close(shut)


def _set_mode(descriptor: int, mode: int) -> None:
    """Through the descriptor, which can't be replaced as a name can."""
    Path(f"/proc/self/fd/{descriptor}").chmod(mode)


def unlinked_bytes(workspace: Path, pids: Iterable[int]) -> int:
    """The storage of files that are deleted but still open or mapped in one of the processes.

    A file that is only in transit between two of them, in a socket, is not seen.
    """
    device = workspace.stat().st_dev
    sizes: dict[int, int] = {}
    for pid in pids:
        for thread in processes.threads(pid):
            for file in (*_entries(thread / "fd"), *_mapped(thread)):
                try:
                    found = file.stat()
                except OSError:
                    continue
                if found.st_nlink == 0 and found.st_dev == device and stat.S_ISREG(found.st_mode):
                    sizes[found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except processes.GONE:
        return []


def _mapped(thread: Path) -> list[Path]:
    """The mappings of deleted files; only root can follow them."""
    try:
        lines = (thread / "maps").read_bytes().splitlines()
    except processes.GONE:
        return []
    return [
        thread / "map_files" / processes.map_file(line.split()[0].decode())
        for line in lines
        if line.endswith(b" (deleted)")
    ]


def _open_root(workspace: Path) -> int:
    """The workspace itself, even if its program took away all rights to enter it."""
    try:
        return os.open(workspace, _FOLDER)
    except PermissionError:
        workspace.chmod(0o700)  # the program can't put a link into its parent folder
        return os.open(workspace, _FOLDER)


def _measure(folder: int, seen: set[int]) -> tuple[int, list[str]]:
    """The size of the files directly in this folder, and its subfolders."""
    total = 0
    folders: list[str] = []
    try:
        names = os.listdir(folder)
    except OSError:
        return 0, []
    for name in names:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode):
            folders.append(name)
        elif found.st_nlink > 1:
            if found.st_ino in seen:
                continue
            seen.add(found.st_ino)
        total += max(found.st_blocks * 512, _LEAST_BYTES)
    return total, folders
