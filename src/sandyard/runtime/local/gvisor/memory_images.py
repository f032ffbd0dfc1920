"""What a machine has in memory, behind the archive of its files in the same snapshot: so both are
there, or neither.

It is one frame that zstd skips, so that the archive is read as any other. The last frame says where
that one begins; only the supervisor writes behind an archive.
"""

import hashlib
import json
import os
import platform
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import sandyard
from sandyard.runtime.local.gvisor.bundle import agent_libraries
from sandyard.runtime.local.gvisor.runsc import runsc_version
from sandyard.runtime.local.jail.overlays import HOST_PACKAGES
from sandyard.runtime.model import GvisorPlatform, IsolationMode

_FRAME = struct.Struct("<II")
_SKIPPED = 0x184D2A50
_MOST_BYTES = (1 << 32) - 1
_END = struct.Struct("<16sQ")
_MARK = b"sandyard-memory1"
_END_BYTES = _FRAME.size + _END.size
_LENGTH = struct.Struct("<Q")
_PIECE = 1 << 20
_FILES = ("checkpoint.img", "pages_meta.img", "pages.img")
_PACK, _UNPACK = ("/usr/bin/zstd", "-q1c"), ("/usr/bin/zstd", "-dqc")


@dataclass(frozen=True, slots=True)
class MemoryImage:
    snapshot: Path
    begins_at: int
    state: dict[str, Any]
    """What the supervisor needs besides the files of the checkpoint."""

    def require(self, isolation: IsolationMode, on: GvisorPlatform, root: str | None) -> None:
        """Raises OSError that says why it can't be restored here, on this root file system."""
        if (made_on := self.state.get("platform", on)) != on:
            raise OSError(f"they ran on gVisor's platform {made_on}")
        if isolation != "gvisor":
            raise OSError("they ran in gVisor")
        made_by, here = self.state["version"], image_version()
        if made_by != here:
            raise OSError(f"they were kept by {made_by}; this server has {here}")
        if self.state["files"] != files_version(root):
            raise OSError("other versions of their programs and libraries are installed now")

    def extract(self, folder: Path) -> None:
        """Raises OSError."""
        with _content(self.snapshot, self.begins_at) as content:
            head = _read_head(content)
            for name, size in zip(_FILES, head["sizes"], strict=True):
                with (folder / name).open("wb") as file:
                    for begin in range(0, size, _PIECE):
                        file.write(_exactly(content, min(_PIECE, size - begin)))


def image_version() -> str:
    """Images are restored by equal versions only: of gVisor, and of the agent that runs inside with
    the server's libraries. A process has only the changes to what it has loaded in its image."""
    libraries = _digest(agent_libraries() / "libc.so.6")[:12]
    python = f"Python {platform.python_version()}, libraries {libraries}"
    return f"gVisor {runsc_version()}, Sandyard {sandyard.__version__}, {python}"


def files_version(root: str | None) -> str:
    """Of what all other processes have loaded: the name of a root file system says its content; the
    server's own changes with its packages."""
    if root is not None:
        return Path(root).name
    packages = Path(HOST_PACKAGES, "status")
    return _digest(packages) if packages.exists() else str(Path("/usr/bin").stat().st_mtime_ns)


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def append(archive: Path, folder: Path, root: str | None, state: dict[str, Any]) -> None:
    """The files of a checkpoint of a machine with this root file system, behind this archive.
    Raises OSError."""
    sizes = [(folder / name).stat().st_size for name in _FILES]
    made_with = {"version": image_version(), "files": files_version(root), "sizes": sizes}
    head = json.dumps({**state, **made_with}).encode()
    (folder / "head").write_bytes(_LENGTH.pack(len(head)) + head)
    names = [str(folder / name) for name in ("head", *_FILES)]
    with archive.open("r+b") as file:
        begins_at = file.seek(0, os.SEEK_END)
        file.write(_FRAME.pack(_SKIPPED, 0))
        file.flush()
        reader = ["/bin/cat", *names]
        with subprocess.Popen(reader, stdout=subprocess.PIPE) as reading:  # noqa: S603
            packing = subprocess.run(_PACK, stdin=reading.stdout, stdout=file, check=False)  # noqa: S603
        size = file.seek(0, os.SEEK_END) - begins_at - _FRAME.size
        if reading.returncode or packing.returncode or size > _MOST_BYTES:
            raise OSError("its memory could not be written")
        file.write(_FRAME.pack(_SKIPPED, _END.size) + _END.pack(_MARK, begins_at))
        file.seek(begins_at)
        file.write(_FRAME.pack(_SKIPPED, size))
        file.flush()
        os.fsync(file.fileno())


def find_memory(snapshot: Path) -> MemoryImage | None:
    """None if it has files only. Raises OSError."""
    with snapshot.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size < _END_BYTES:
            return None
        file.seek(size - _END.size)
        mark, begins_at = _END.unpack(file.read(_END.size))
    if mark != _MARK:
        return None
    with _content(snapshot, begins_at) as content:
        return MemoryImage(snapshot, begins_at, _read_head(content))


def _read_head(content: IO[bytes]) -> dict[str, Any]:
    (length,) = _LENGTH.unpack(_exactly(content, _LENGTH.size))
    head: dict[str, Any] = json.loads(_exactly(content, length))
    return head


def _exactly(content: IO[bytes], size: int) -> bytes:
    if len(piece := content.read(size)) < size:
        raise OSError("the image of its memory is damaged")
    return piece


@contextmanager
def _content(snapshot: Path, begins_at: int) -> Iterator[IO[bytes]]:
    """Decompressed."""
    with snapshot.open("rb") as file:
        os.lseek(file.fileno(), begins_at + _FRAME.size, os.SEEK_SET)
        with subprocess.Popen(_UNPACK, stdin=file, stdout=subprocess.PIPE) as unpacking:  # noqa: S603
            assert unpacking.stdout is not None  # noqa: S101 - for the type checker
            try:
                yield unpacking.stdout
            finally:
                unpacking.kill()
