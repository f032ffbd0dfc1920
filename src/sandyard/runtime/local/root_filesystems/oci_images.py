"""Reads the source of an environment: an OCI layout, as a folder or a tar, or a tar of a root
file system."""

import gzip
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from sandyard.runtime.errors import EnvironmentRefusedError
from sandyard.runtime.local.root_filesystems.layers import LayerUnpacker

_INDEX, _LAYOUT = "index.json", "oci-layout"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_DIGEST_PREFIX = "sha256:"
_MOST_JSON_BYTES = 4 << 20
_DEEPEST_INDEX = 4
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_LOOKED_AT = 64


@dataclass(frozen=True, slots=True)
class Image:
    """The result of unpacking: the default variables of its processes."""

    environment: Mapping[str, str] = field(default_factory=dict)


def unpack_image(source: Path, root: Path) -> Image:
    """Into the folder `root`. Raises EnvironmentRefusedError."""
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
    return Image()


def _unpack_layout(layout: Path, root: Path) -> Image:
    if not (layout / _LAYOUT).is_file():
        raise EnvironmentRefusedError(f"{layout} is not an OCI layout: it has no {_LAYOUT}.")
    manifest = _manifest(layout, _json(layout / _INDEX), depth=0)
    unpacker = LayerUnpacker(root)
    for layer in manifest["layers"]:
        with _opened(_blob(layout, layer)) as content:
            unpacker.unpack(content)
    settings = _json(_blob(layout, manifest["config"])).get("config") or {}
    pairs = (str(each).partition("=") for each in settings.get("Env") or [])
    return Image({name: value for name, _, value in pairs if name})


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
