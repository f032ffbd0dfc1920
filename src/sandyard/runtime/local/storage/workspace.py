"""The workspace's files, handled from outside while a hostile program may change them.

Every step goes from an open folder to one of its entries and follows no link, so nothing that
the program renames or links in between leads out.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandyard.runtime.errors import UnsafePathError
from sandyard.runtime.local.host import processes
from sandyard.runtime.model import FileChanges, path_parts

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 200
_TOO_MUCH = 1 << 62
_LEAST_BYTES = 512
_PROCFILE_BYTES = 65536


def apply_changes(workspace: Path, changes: FileChanges, *, uid: int | None) -> None:
    """Delete and write files; if a path is not safe, UnsafePathError, and nothing is done."""
    deleted = [path_parts(path) for path in sorted(changes.deleted)]
    written = [(path_parts(path), content) for path, content in sorted(changes.written.items())]
    root = _open_root(workspace)
    try:
        for parts in deleted:
            _delete(root, parts)
        for parts, content in written:
            _write(root, parts, content, uid)
    finally:
        os.close(root)


def read_procfile(workspace: Path) -> str | None:
    """The Procfile at the top, if it is a regular file: no link, pipe or device."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    root = _open_root(workspace)
    try:
        descriptor = os.open("Procfile", flags, dir_fd=root)
    except OSError:
        return None
    finally:
        os.close(root)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.read(descriptor, _PROCFILE_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)


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


def _delete(root: int, parts: Sequence[str]) -> None:
    folders = [root]
    try:
        for part in parts[:-1]:
            folders.append(os.open(part, _FOLDER, dir_fd=folders[-1]))
        os.unlink(parts[-1], dir_fd=folders[-1])
        for part, parent in reversed(list(zip(parts[:-1], folders, strict=False))):
            os.rmdir(part, dir_fd=parent)
    except OSError as error:
        # Already gone, or a folder that still has files: nothing to do in both cases.
        if error.errno not in _NOTHING_TO_DO:
            raise
    finally:
        for folder in folders[1:]:
            os.close(folder)


_NOTHING_TO_DO = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.EISDIR,
    errno.EPERM,
    errno.ENOTEMPTY,
    errno.EEXIST,
}


def _write(root: int, parts: Sequence[str], content: bytes, uid: int | None) -> None:
    folder = os.dup(root)
    try:
        for part in parts[:-1]:
            below = _enter(folder, part, uid)
            os.close(folder)
            folder = below
        _put(folder, parts[-1], content, uid)
    except OSError as error:
        raise UnsafePathError("/".join(parts)) from error
    finally:
        os.close(folder)


def _enter(folder: int, name: str, uid: int | None) -> int:
    """The folder of this name, created if missing; a link or file in its place is removed."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError:
        os.unlink(name, dir_fd=folder)
    os.mkdir(name, 0o755, dir_fd=folder)
    made = os.open(name, _FOLDER, dir_fd=folder)
    if uid is not None:
        os.fchown(made, uid, uid)
    return made


def _put(folder: int, name: str, content: bytes, uid: int | None) -> None:
    draft = f".sandyard-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o644, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if uid is not None:
                os.fchown(descriptor, uid, uid)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(draft, dir_fd=folder)
        raise
