"""Reads the source of an environment: an OCI layout, as a folder or a tar, or a tar of a root
file system."""

import gzip
import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from sandyard.runtime.errors import EnvironmentRefusedError

MOST_BYTES = 32 << 30
MOST_ENTRIES = 2_000_000
_MOST_LINKS = 40
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_CHUNK_BYTES = 1 << 20
_INDEX, _LAYOUT = "index.json", "oci-layout"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_DIGEST_PREFIX = "sha256:"
_MOST_JSON_BYTES = 4 << 20
_DEEPEST_INDEX = 4
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_LOOKED_AT = 64


class LayerUnpacker:
    def __init__(self, root: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self._root = root
        self._bytes_left = most_bytes
        self._entries_left = MOST_ENTRIES

    def unpack(self, content: IO[bytes]) -> None:
        """Unpack one layer over the previous ones. Raises EnvironmentRefusedError."""
        written: set[Path] = set()
        try:
            with tarfile.open(fileobj=content, mode="r|") as archive:
                for member in archive:
                    self._add(archive, member, written)
        except (tarfile.TarError, EOFError) as error:
            raise EnvironmentRefusedError(f"A layer is not a tar archive: {error}") from error

    def _add(self, archive: tarfile.TarFile, member: tarfile.TarInfo, written: set[Path]) -> None:
        self._entries_left -= 1
        if self._entries_left < 0:
            raise EnvironmentRefusedError("It has too many files.")
        parts = _parts(member.name)
        if not parts:
            return
        parent = self._folder_at(parts[:-1])
        name = parts[-1]
        if name == _OPAQUE:
            self._empty(parent, written)
        elif name.startswith(_WHITEOUT):
            remove(parent / _plain(name.removeprefix(_WHITEOUT)))
        else:
            self._write(archive, member, parent / name)
            written.add(parent / name)
            written.update(parent.parents)
            written.add(parent)

    def _write(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        mode = member.mode & 0o777
        if member.isdir():
            if path.is_symlink() or not path.is_dir():
                remove(path)
                path.mkdir()
            path.chmod(mode | 0o700)
        elif member.issym():
            remove(path)
            path.symlink_to(member.linkname)
        elif member.islnk():
            self._link(member, path)
        elif member.isreg():
            remove(path)
            self._copy(archive, member, path)
            path.chmod(mode)

    def _link(self, member: tarfile.TarInfo, path: Path) -> None:
        """Hard-link another file of the same root; other targets are refused."""
        parts = _parts(member.linkname)
        target = self._folder_at(parts[:-1]) / parts[-1] if parts else self._root
        if not target.is_symlink() and not target.is_file():
            raise EnvironmentRefusedError(f"{member.name!r} is a link to a missing file.")
        if target != path:
            remove(path)
            os.link(target, path, follow_symlinks=False)

    def _copy(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        self._bytes_left -= member.size
        if self._bytes_left < 0:
            raise EnvironmentRefusedError("It is too large.")
        source = archive.extractfile(member)
        if source is None:
            raise EnvironmentRefusedError(f"{member.name!r} has no content.")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            shutil.copyfileobj(source, file, _CHUNK_BYTES)

    def _folder_at(self, parts: list[str]) -> Path:
        """The folder at this path, created if missing; links are resolved inside the root."""
        waiting, links = list(reversed(parts)), 0
        here = self._root
        while waiting:
            name = waiting.pop()
            if name == "..":
                here = here if here == self._root else here.parent
                continue
            there = here / name
            if there.is_symlink():
                links += 1
                if links > _MOST_LINKS:
                    raise EnvironmentRefusedError("It has circular links.")
                target = str(there.readlink())
                here = self._root if target.startswith("/") else here
                waiting += [part for part in reversed(target.split("/")) if part not in ("", ".")]
                continue
            if not there.is_dir():
                remove(there)
                there.mkdir()
            here = there
        return here

    def _empty(self, folder: Path, written: set[Path]) -> None:
        """Remove what earlier layers left there."""
        for path in list(folder.iterdir()):
            if path not in written:
                remove(path)
            elif path.is_dir() and not path.is_symlink():
                self._empty(path, written)


def _parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise EnvironmentRefusedError(f"{name!r} would leave its folder.")
    return parts


def _plain(name: str) -> str:
    if name in ("", ".", ".."):
        raise EnvironmentRefusedError("A layer has an invalid whiteout.")
    return name


def remove(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)
    else:
        path.unlink()


def unpack_image(source: Path, root: Path) -> dict[str, str]:
    """Into the folder `root`; returns the default variables of its processes. Raises
    EnvironmentRefusedError."""
    if source.is_dir():
        return _unpack_layout(source, root)
    if not source.is_file():
        raise EnvironmentRefusedError(f"There is no file {source}.")
    if _is_layout(source):
        with tempfile.TemporaryDirectory(dir=root.parent) as folder:
            with _opened(source) as content:
                LayerUnpacker(Path(folder)).unpack(content)
            return _unpack_layout(Path(folder), root)
    with _opened(source) as content:
        LayerUnpacker(root).unpack(content)
    return {}


def _unpack_layout(layout: Path, root: Path) -> dict[str, str]:
    if not (layout / _LAYOUT).is_file():
        raise EnvironmentRefusedError(f"{layout} is not an OCI layout: it has no {_LAYOUT}.")
    manifest = _manifest(layout, _json(layout / _INDEX), depth=0)
    unpacker = LayerUnpacker(root)
    for layer in manifest["layers"]:
        with _opened(_blob(layout, layer)) as content:
            unpacker.unpack(content)
    settings = _json(_blob(layout, manifest["config"])).get("config") or {}
    pairs = (str(each).partition("=") for each in settings.get("Env") or [])
    return {name: value for name, _, value in pairs if name}


def _manifest(layout: Path, index: dict[str, Any], *, depth: int) -> dict[str, Any]:
    """The manifest for this host's architecture."""
    if "layers" in index:
        return index
    found = [each for each in index.get("manifests") or [] if _suits(each.get("platform"))]
    if not found or depth > _DEEPEST_INDEX:
        raise EnvironmentRefusedError("It has no image for this machine's architecture.")
    return _manifest(layout, _json(_blob(layout, found[0])), depth=depth + 1)


def _suits(wanted: dict[str, Any] | None) -> bool:
    machine = platform.machine()
    here = ("linux", _MACHINES.get(machine, machine))
    return wanted is None or (wanted.get("os"), wanted.get("architecture")) == here


def _blob(layout: Path, descriptor: dict[str, Any]) -> Path:
    """The file that a descriptor names, if its content matches the digest."""
    digest = str(descriptor.get("digest", ""))
    name = digest.removeprefix(_DIGEST_PREFIX)
    is_sha256 = digest.startswith(_DIGEST_PREFIX) and len(name) == 64 and name.isalnum()
    path = layout / "blobs/sha256" / name
    if not is_sha256 or not path.is_file():
        raise EnvironmentRefusedError(f"A part of the image is missing: {digest[:80]}.")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != name:
        raise EnvironmentRefusedError(f"A part of the image is damaged: {digest}.")
    return path


def _json(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MOST_JSON_BYTES))
    except (OSError, ValueError) as error:
        raise EnvironmentRefusedError(f"{path.name} can't be read: {error}") from error
    if not isinstance(content, dict):
        raise EnvironmentRefusedError(f"{path.name} is not a JSON object.")
    return content


def _is_layout(source: Path) -> bool:
    """Whether it is an OCI layout, by the first names in the tar."""
    with _opened(source) as content:
        try:
            with tarfile.open(fileobj=content, mode="r|") as archive:
                first = zip(archive, range(_LOOKED_AT), strict=False)
                names = [member.name.removeprefix("./") for member, _ in first]
        except (tarfile.TarError, EOFError) as error:
            raise EnvironmentRefusedError(f"This is not a tar archive: {error}") from error
    return _LAYOUT in names or any(name.startswith("blobs/sha256/") for name in names)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The content of a file, decompressed according to its first bytes."""
    with path.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        if magic.startswith(_GZIP):
            with gzip.open(file) as unpacked:
                yield cast("IO[bytes]", unpacked)
        elif magic == _ZSTD:
            with _unzstd(file) as unpacked:
                yield unpacked
        else:
            yield file


@contextmanager
def _unzstd(file: IO[bytes]) -> Iterator[IO[bytes]]:
    program = shutil.which("zstd")
    if program is None:
        raise EnvironmentRefusedError(
            "It is compressed with zstd, which is not installed. Install zstd."
        )
    os.lseek(file.fileno(), 0, os.SEEK_SET)  # part of it may have been read into our buffer
    command = [program, "--decompress", "--stdout", "--quiet"]
    with subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE) as process:  # noqa: S603
        if process.stdout is None:
            raise EnvironmentRefusedError("zstd did not start.")
        try:
            yield process.stdout
        finally:
            process.kill()
