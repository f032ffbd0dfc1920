"""Reads an image from an OCI layout or the output of `docker save`: a folder, or a tar of one."""

import gzip
import hashlib
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from sandyard.runtime.images import model
from sandyard.runtime.images.errors import ImageRefusedError
from sandyard.runtime.images.model import Manifest, Part
from sandyard.runtime.images.unpacking import Unpacker, entries_of

_LAYOUT, _INDEX, _OF_DOCKER = "oci-layout", "index.json", "manifest.json"
_DEEPEST_INDEX = 4
_LOOKED_AT = 64
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """An image whose parts are files, checked by their digests."""

    manifest: Manifest
    files: Mapping[str, Path] = field(repr=False)
    """By SHA-256."""

    @property
    def layers(self) -> list[Path]:
        return [self.files[each.sha256] for each in self.manifest.layers]

    def config(self) -> dict[str, Any]:
        return _json(self.files[self.manifest.config.sha256])


def read_archive(
    source: Path,
    scratch: Path,
    *,
    most_bytes: int,
    require_space: Callable[[], None] = lambda: None,
) -> ImageFiles | None:
    """The image in this file or folder; None if it is a tar of something else. Its files may be in
    `scratch`. Raises ImageRefusedError, and the errors of `require_space`."""
    if source.is_dir():
        return _read_layout(source)
    if not source.is_file():
        raise ImageRefusedError(f"There is no file {source}.")
    if not _is_image(source, most_bytes):
        return None
    with opened(source) as content:
        Unpacker(scratch, most_bytes=most_bytes, require_space=require_space).unpack(content)
    return _read_layout(scratch)


def _read_layout(folder: Path) -> ImageFiles:
    """Raises ImageRefusedError."""
    if (folder / _LAYOUT).is_file():
        return _of_oci(folder)
    if (folder / _OF_DOCKER).is_file():
        return _of_docker(folder)
    raise ImageRefusedError(f"It is no OCI layout: it has no {_LAYOUT}.")


def _of_oci(folder: Path) -> ImageFiles:
    found = _json(folder / _INDEX)
    for _ in range(_DEEPEST_INDEX):
        if "layers" not in found:
            found = _json(_blob(folder, model.suited(found)))
    manifest = model.manifest_of(found)
    names = {each.sha256: each for each in manifest.parts}  # each is hashed once
    files = {sha256: _blob(folder, each) for sha256, each in names.items()}
    return ImageFiles(_measured(manifest, files), files)


def _measured(manifest: Manifest, files: Mapping[str, Path]) -> Manifest:
    """With the files' own sizes: nothing depends on what a manifest claims."""

    def measured(part: Part) -> Part:
        return Part(part.sha256, files[part.sha256].stat().st_size)

    return Manifest(measured(manifest.config), [measured(each) for each in manifest.layers])


def _of_docker(folder: Path) -> ImageFiles:
    listed = _json(folder / _OF_DOCKER, key="images")["images"]
    image = listed[0] if isinstance(listed, list) and len(listed) == 1 else None
    layers = image.get("Layers") if isinstance(image, dict) else None
    if not isinstance(image, dict) or not isinstance(layers, list):
        raise ImageRefusedError("It must have one image. Save one at a time.")
    if len(layers) > model.MOST_LAYERS:
        raise ImageRefusedError("It has too many layers.")
    parts: dict[Path, Part] = {}

    def part(name: Any) -> Part:
        path = _inside(folder, str(name))
        if path not in parts:
            parts[path] = Part(sha256_of(path), path.stat().st_size)
        return parts[path]

    manifest = Manifest(part(image.get("Config")), [part(each) for each in layers])
    return ImageFiles(manifest, {each.sha256: path for path, each in parts.items()})


def _inside(folder: Path, name: str) -> Path:
    """Raises ImageRefusedError for what is not a file in this folder."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise ImageRefusedError(f"A part of the image is missing: {name[:80]}.")
    return path


def _blob(folder: Path, part: Part) -> Path:
    path = _inside(folder, f"blobs/sha256/{part.sha256}")
    if sha256_of(path) != part.sha256:
        raise ImageRefusedError(f"A part of the image is damaged: sha256:{part.sha256}.")
    return path


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _json(path: Path, *, key: str | None = None) -> dict[str, Any]:
    """With a key, any JSON is read, as the value of that key."""
    try:
        with path.open("rb") as file:
            content = file.read(model.MOST_JSON_BYTES)
    except OSError as error:
        raise ImageRefusedError(f"{path.name} can't be read.") from error
    whole = content if key is None else b'{"%s": %s}' % (key.encode(), content)
    return model.read_json(whole)


def _is_image(source: Path, most_bytes: int) -> bool:
    """By the first names in the tar."""
    with opened(source) as content, entries_of(content) as archive:
        for each in islice(archive, _LOOKED_AT):
            name = each.name.removeprefix("./")
            if name in (_LAYOUT, _OF_DOCKER) or name.startswith("blobs/sha256/"):
                return True
            if each.offset_data + each.size > most_bytes:  # to pass over it takes that long
                raise ImageRefusedError("It is too large.")
    return False


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The content of a file, decompressed according to its first bytes. Raises ImageRefusedError
    for what can't be."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
            file.seek(0)
            if magic.startswith(_GZIP):
                with gzip.open(file) as unpacked:
                    yield cast("IO[bytes]", unpacked)
            elif magic == _ZSTD:
                with _unzstd(path) as unpacked:
                    yield unpacked
            else:
                yield file
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ImageRefusedError(f"This is not a tar archive: {error}") from error


@contextmanager
def _unzstd(path: Path) -> Iterator[IO[bytes]]:
    program = shutil.which("zstd")
    if program is None:
        raise ImageRefusedError("It is compressed with zstd, which this server does not have.")
    command = [program, "--decompress", "--stdout", "--quiet", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603
        if process.stdout is None:
            raise ImageRefusedError("zstd did not start.")
        try:
            yield process.stdout
        finally:
            process.kill()
