"""One archive of many files, with a manifest of sizes and SHA-256 sums at its end."""

import gzip
import hashlib
import json
import os
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self

from sandyard.entrypoints.backup.errors import ArchiveInvalidError

FORMAT = 1
_MANIFEST = "manifest.json"
_CHUNK = 1 << 20
_LEVEL = 1
"""Snapshots are already compressed, and a database compresses well at any level."""
_MANIFEST_BYTES = 64 << 20
_FILES = 1_000_000
_HEADER_BYTES = 16 << 10
_NAME_BYTES = 255
_PATH_BYTES = 1024
_TIME_SEC = float(1 << 40)
"""How far from 1970 a file's time may be: beyond any clock, and accepted by all systems."""

_GROWING = (tarfile.GNUTYPE_SPARSE, tarfile.XGLTYPE)
"""Headers that accumulate, however small each is."""
_DAMAGES = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    ValueError,
    OverflowError,
    RecursionError,  # from headers that announce headers
)

OnProgress = Callable[[int], None]
"""Called with the number of bytes done."""


@dataclass(frozen=True, slots=True)
class Entry:
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    about: Mapping[str, Any]
    """The writer's metadata of the whole archive."""
    files: Mapping[str, Entry]


@dataclass(slots=True)
class ArchiveWriter:
    _tar: tarfile.TarFile
    _on_progress: OnProgress
    _files: dict[str, Entry] = field(default_factory=dict)
    _done: int = 0

    def add(self, name: str, source: Path) -> None:
        """Add a file with its time. If it grows meanwhile, only its initial size is added."""
        with source.open("rb") as file:
            status = os.fstat(file.fileno())
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = status.st_size, status.st_mtime, 0o600
            reader = _Hashing(file, self.advance)
            self._tar.addfile(info, reader)
        self._files[name] = Entry(info.size, reader.sha256.hexdigest())

    def finish(self, about: Mapping[str, Any]) -> None:
        files = {name: asdict(entry) for name, entry in self._files.items()}
        content = {"format": FORMAT, "about": about, "files": files}
        encoded = json.dumps(content).encode()
        info = tarfile.TarInfo(_MANIFEST)
        info.size, info.mode = len(encoded), 0o600
        self._tar.addfile(info, BytesIO(encoded))

    def advance(self, count: int) -> None:
        self._done += count
        self._on_progress(self._done)


@contextmanager
def writing(path: Path, on_progress: OnProgress) -> Iterator[ArchiveWriter]:
    """A new archive, accessible to its owner only from the beginning; flushed to disk when the
    block ends."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with (
            gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_LEVEL) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            yield ArchiveWriter(tar, on_progress)
        file.flush()
        os.fsync(file.fileno())


def check_archive(file: IO[bytes], on_progress: OnProgress) -> Manifest:
    """Read all of it; raise ArchiveInvalidError unless it is complete and matches its manifest."""
    found: dict[str, Entry] = {}
    text: bytes | None = None
    with _translated():
        for info, content in _members(file, on_progress):
            if len(found) == _FILES:
                raise ArchiveInvalidError(f"It has more than {_FILES:,} files.")
            if text is not None or info.name in found:
                raise ArchiveInvalidError(f"{info.name!r} appears twice, or after the manifest.")
            if info.name == _MANIFEST:
                text = _bounded(info, content)
            else:
                require_inside(info.name)
                if not abs(info.mtime) < _TIME_SEC:  # also false for NaN
                    raise ArchiveInvalidError(f"{info.name!r} has an invalid time.")
                found[info.name] = _entry(content)
    manifest = _parse(text or b"")
    if manifest.files != found:
        raise ArchiveInvalidError("The files do not match the manifest.")
    _require_no_file_is_a_folder(found)
    return manifest


def extract(
    file: IO[bytes],
    manifest: Manifest,
    to: Path,
    *,
    wanted: Callable[[str], bool],
    on_progress: OnProgress,
) -> None:
    """Extract the requested files into the folder, accessible to their owner only."""
    with _translated():
        for info, content in _members(file, on_progress):
            if info.name in manifest.files and wanted(info.name):
                path = to / require_inside(info.name)
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _write(path, content, manifest.files[info.name])
                os.utime(path, (info.mtime, info.mtime))


def require_inside(name: str) -> PurePosixPath:
    """The path, if it is a plain relative one that stays inside."""
    path = PurePosixPath(name)
    is_plain = str(path) == name and not path.is_absolute() and "\0" not in name
    if not is_plain or not path.parts or ".." in path.parts:
        raise ArchiveInvalidError(f"{name!r} is not a path inside a data dir.")
    longest = max(len(os.fsencode(part)) for part in path.parts)
    if longest > _NAME_BYTES or len(os.fsencode(name)) > _PATH_BYTES:
        raise ArchiveInvalidError(f"{name[:_NAME_BYTES]!r}… is a path that is too long.")
    return path


def _require_no_file_is_a_folder(names: Collection[str]) -> None:
    for name in names:
        for folder in PurePosixPath(name).parents:
            if str(folder) in names:
                raise ArchiveInvalidError(f"{str(folder)!r} is both a file and a folder.")


def _bounded(info: tarfile.TarInfo, content: "_Hashing") -> bytes:
    if info.size > _MANIFEST_BYTES:
        raise ArchiveInvalidError(f"The manifest is too large: {info.size:,} bytes.")
    return content.read(_MANIFEST_BYTES)


def _members(
    file: IO[bytes], on_progress: OnProgress
) -> Iterator[tuple[tarfile.TarInfo, "_Hashing"]]:
    """Each file with its content; anything but a regular file is refused."""
    file.seek(0)
    with gzip.GzipFile(fileobj=file) as packed:
        with tarfile.open(fileobj=packed, mode="r|", tarinfo=_Header) as tar:
            while info := tar.next():
                # tarfile would keep all headers to the end.
                tar.members.clear()  # type: ignore[attr-defined]
                content = tar.extractfile(info) if info.isreg() else None
                if content is None or info.issparse():
                    raise ArchiveInvalidError(f"{info.name!r} is not a plain file.")
                yield info, _Hashing(content, lambda _: on_progress(file.tell()))
        while packed.read(_CHUNK):  # to the end, where gzip has its checksum
            pass


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except _DAMAGES as error:
        raise ArchiveInvalidError(f"The file is damaged or not a backup: {error}.") from error


class _Header(tarfile.TarInfo):
    """Refuses, before reading them, headers that would use unlimited memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        info = super().frombuf(buf, encoding, errors)
        is_plain = info.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
        if not is_plain and (info.size > _HEADER_BYTES or info.type in _GROWING):
            raise ArchiveInvalidError(f"{info.name!r} is not a plain file.")
        return info

    def _proc_gnusparse_10(self, *_: object) -> None:
        raise ArchiveInvalidError(f"{self.name!r} is not a plain file.")


class _Hashing:
    """Reads a file and hashes its content."""

    def __init__(self, file: IO[bytes], on_progress: OnProgress) -> None:
        self._file = file
        self._on_progress = on_progress
        self.sha256 = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.sha256.update(data)
        self.size += len(data)
        self._on_progress(len(data))
        return data


def _entry(content: _Hashing) -> Entry:
    while content.read(_CHUNK):
        pass
    return Entry(content.size, content.sha256.hexdigest())


def _write(path: Path, content: _Hashing, expected: Entry) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as target:
        while data := content.read(_CHUNK):
            target.write(data)
        target.flush()
        os.fsync(target.fileno())
    if Entry(content.size, content.sha256.hexdigest()) != expected:
        raise ArchiveInvalidError(f"{path.name} changed while it was read.")


def _parse(manifest: bytes) -> Manifest:
    try:
        found = json.loads(manifest)
        if found["format"] != FORMAT:
            raise ArchiveInvalidError("This backup is from an incompatible version of Sandyard.")
        files = {name: Entry(**entry) for name, entry in found["files"].items()}
        return Manifest(dict(found["about"]), files)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ArchiveInvalidError("The file has no manifest: it is not a backup.") from error
