"""Content of files on its way into and out of a machine elsewhere: uploads are moved into place,
archives leave in lines."""

import base64
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator

from . import RefusedError, archives, files
from .file_changes import UNSAFE_PATH, apply_changes
from .lines import write_line
from .paths import Paths

_PIECE_BYTES = 192 * 1024


def list_folder(paths: Paths, *, path: str, depth: int) -> Iterator[files.Info]:
    found = files.list_folder(paths, path=path, depth=depth)
    yield from sorted(found, key=lambda info: str(info["path"]))


def check_readable(paths: Paths, *, path: str) -> str:
    """The real path of a file that can be read."""
    _, descriptor = files.open_file(paths, path=path)
    os.close(descriptor)
    return os.path.realpath(paths.real_path(path))


def put_file(paths: Paths, *, upload: str, path: str, mode: int | None) -> files.Info:
    """Move an upload into place atomically."""
    try:
        created, descriptor = files.create_file(paths, path=path, mode=mode)
        os.chmod(upload, stat.S_IMODE(os.fstat(descriptor).st_mode))
        os.close(descriptor)
        try:
            shutil.move(upload, created["draft"])
            return files.commit_file(paths, **created)
        except BaseException:
            files.discard_file(paths, draft=created["draft"])
            raise
    finally:
        if os.path.exists(upload):
            os.unlink(upload)


def apply(paths: Paths, *, incoming: str) -> None:
    """Delete and write as the uploaded folder says: `paths.json` has the paths, and each written
    file's content is under its number."""
    try:
        listed = json.loads(_read(incoming, "paths.json"))
        written = {path: _read(incoming, str(n)) for n, path in enumerate(listed["written"])}
        _require_inside(paths.workspace, listed["written"])
        apply_changes(paths.workspace, written, listed["deleted"])
    finally:
        shutil.rmtree(incoming)


def read_tar(paths: Paths, *, path: str) -> None:
    names = archives.enter_folder(paths, path=path)
    archives.pack(names, _Lines(), piece_bytes=_PIECE_BYTES)


def write_tar(paths: Paths, *, upload: str, path: str) -> None:
    try:
        with open(upload, "rb") as content:
            archives.unpack(paths, content, path=path)
    finally:
        os.unlink(upload)


class _Lines:
    def write(self, piece: bytes) -> None:
        write_line({"item": base64.b64encode(piece).decode()})


def _require_inside(workspace: str, written: Iterable[str]) -> None:
    """Before anything is written: no link on the way to a file leads out of the workspace."""
    root = os.path.realpath(workspace)
    for path in written:
        folder = os.path.realpath(os.path.dirname(os.path.join(root, path)))
        if folder != root and not folder.startswith(f"{root}/"):
            raise RefusedError(UNSAFE_PATH, path)


def _read(folder: str, name: str) -> bytes:
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()
