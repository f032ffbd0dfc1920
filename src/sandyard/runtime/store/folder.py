"""A folder as an object store, such as a mounted share: one file per object."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from sandyard.runtime.records.run_folder import sync_folder
from sandyard.runtime.store.errors import StoreUnavailableError
from sandyard.runtime.store.hashing import copy, sha256_of
from sandyard.runtime.store.model import REFERENCES
from sandyard.runtime.store.ports import StoredObject

_DRAFT = ".new-"
_PIECE_BYTES = 8 << 20
_MARKER = "sandyard-store"
"""In a folder without it, the share is not mounted."""


class FolderObjects:
    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self.address = f"file:{self._path}"

    def initialise(self) -> None:
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._path / _MARKER).touch(mode=0o600)
            sync_folder(self._path)
        except OSError as error:
            raise StoreUnavailableError(f"{self.address}: {error}") from error

    def put(self, key: str, source: Path | None = None) -> None:
        self.put_named(source or Path(os.devnull), lambda _: key)

    def put_named(self, source: Path, key_of: Callable[[str], str | None]) -> None:
        """It is hashed while it is copied; the copy of what is already there is broken off."""
        draft = self._path / f"{_DRAFT}{os.urandom(8).hex()}"
        with self._translated(), ThreadPoolExecutor(1) as hashing:
            try:
                draft.touch(mode=0o600)
                named = hashing.submit(lambda: key_of(sha256_of(source)))
                with source.open("rb") as given, draft.open("wb") as file:
                    while piece := given.read(_PIECE_BYTES):
                        if named.done() and named.result() is None:
                            return
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
                if (key := named.result()) is None:
                    return
                target = self._path / key
                self._make_folder(target.parent)
                draft.replace(target)
                sync_folder(target.parent)
            finally:
                draft.unlink(missing_ok=True)

    def get(self, key: str, to: Path) -> str | None:
        with self._translated():
            return copy(self._path / key, to) if (self._path / key).exists() else None

    def find(self, key: str) -> StoredObject | None:
        with self._translated():
            return _found(key, self._path / key)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        with self._translated():
            files = list(_files(self._path / prefix.rpartition("/")[0]))
        for path in sorted(files):
            key = path.relative_to(self._path).as_posix()
            if key.startswith(prefix) and not path.name.startswith(_DRAFT):
                with self._translated():
                    found = _found(key, path)
                if found is not None:
                    yield found

    def delete(self, key: str) -> None:
        path = self._path / key
        with self._translated():
            path.unlink(missing_ok=True)
            if key.startswith(REFERENCES):
                with suppress(OSError):  # it has others
                    path.parent.rmdir()

    def remove_drafts(self, *, before_at: float) -> None:
        with self._translated():
            for path in _files(self._path):
                with suppress(FileNotFoundError):
                    if path.name.startswith(_DRAFT) and path.stat().st_mtime < before_at:
                        path.unlink()

    def _make_folder(self, folder: Path) -> None:
        """Durably."""
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(folder.parent)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            (self._path / _MARKER).stat()
            yield
        except OSError as error:
            raise StoreUnavailableError(f"{self.address}: {error}") from error


def _found(key: str, path: Path) -> StoredObject | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return StoredObject(key, status.st_size, status.st_mtime)


def _files(folder: Path) -> Iterator[Path]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        else:
            yield Path(entry.path)
