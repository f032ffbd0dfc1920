"""Snapshots of workspaces: packed and unpacked in isolation, by the system's tar.

Names, links and pipes that a hostile program left behind mean nothing outside: tar sees only what
the program saw, with the rights that the program had over its own files.
"""

import asyncio
import errno
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sandyard.runtime.local.jail.isolation import WORKSPACE, Isolation
from sandyard.runtime.local.jail.overlays import ARCHIVED
from sandyard.runtime.local.jail.spawn import Outcome, kill_tree, run, spawn
from sandyard.runtime.model import Snapshot
from sandyard.runtime.records.run_folder import sync_folder

_SUFFIX = ".snapshot"
_TAR = "/bin/tar" if Path("/bin/tar").exists() else "/usr/bin/tar"
# A program may have taken away its own right to read a file.
_READS_ITS_OWN: tuple[str, ...] = ("CAP_DAC_OVERRIDE",)
_IS_LINUX = sys.platform == "linux"
_SPARSE = ("--sparse",) if _IS_LINUX else ()
_ATTRIBUTES = ("--xattrs", "--xattrs-include=user.*") if _IS_LINUX else ()
_AT_THE_TOP = ("--anchored", "--no-wildcards-match-slash") if _IS_LINUX else ()
"""How names are excluded. Otherwise tar looks for them in each folder, which takes minutes for a
path of a hundred long names."""
_NO_OWNERS = ("--no-same-owner", *_AT_THE_TOP, f"--exclude=./{ARCHIVED}")
"""Without a root inside, root's changes can't be restored."""
_SYSTEM, _RESTORED = "/system", f"{WORKSPACE}/{ARCHIVED}"
"""Where the system is while it is packed, and while it is restored."""
_WITH_SYSTEM = (
    *("--numeric-owner", "--absolute-names", f"--exclude={_SYSTEM}/*/work"),
    f"--transform=s,^{_SYSTEM},./{ARCHIVED},S",
)
"""The system is read from a folder outside the workspace: programs of the machine could rename one
inside while it is packed. No name of the workspace is changed, because they begin with a dot."""
_OWNERS = ("CAP_DAC_OVERRIDE", "CAP_CHOWN", "CAP_FOWNER", "CAP_FSETID")
_CHANGED_WHILE_READ = 1
"""tar's exit code for that. The isolation exits with it too, if it could not start tar."""
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_PIECE = 1 << 20
"""What the compressor may have held back when its file could not grow."""
_DISK_FULL = "the server's disk is nearly full"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class SnapshotFailedError(Exception):
    """A snapshot could not be taken or restored; the message says why."""


def find_snapshot(path: Path) -> Snapshot | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return Snapshot(path.name.removesuffix(_SUFFIX), found.st_size, found.st_mtime)


async def take(
    isolation: Isolation,
    to: Path,
    *,
    limit_bytes: int,
    disk_bytes: int,
    timeout_sec: float,
    complete: Callable[[Path], None] | None = None,
) -> Snapshot:
    """Pack the workspace, and the system if it has root; the snapshot is complete or absent. It
    takes at most `disk_bytes` of the disk; `complete` adds to it, in a thread."""
    # It may have exceeded its limit, and ended by that.
    blocks = min(2 * limit_bytes + 2**20, disk_bytes) // 512
    if blocks <= 0:
        raise SnapshotFailedError(_DISK_FULL)
    words = (_TAR, *_SPARSE, *_ATTRIBUTES, "-cf", "-", f"--use-compress-program={_compressor()}")
    # A user's folder of that name is not the system.
    words += (*_AT_THE_TOP, f"--exclude=./{ARCHIVED}")
    words += (*_WITH_SYSTEM, ".", _SYSTEM) if isolation.has_root else (".",)
    tar = shlex.join(words)
    pack = f"ulimit -f {blocks}; {tar}; code=$?; [ $code = {_CHANGED_WHILE_READ} ] || exit $code"
    draft = to.with_suffix(".new")
    try:
        outcome = await _pack(isolation, pack, draft, timeout_sec)
        if outcome.code in _KILLED:  # not its own fault: the files are all there
            outcome = await _pack(isolation, pack, draft, timeout_sec)
        if outcome.code and draft.stat().st_size >= disk_bytes - _PIECE:
            raise SnapshotFailedError(_DISK_FULL)
        if outcome.code:
            raise _pack_failure(outcome)
        if complete is not None:
            await asyncio.to_thread(complete, draft)
        draft.replace(to)
        sync_folder(to.parent)
    except TimeoutError as error:
        raise SnapshotFailedError(f"it was not packed within {timeout_sec:g} s") from error
    finally:
        draft.unlink(missing_ok=True)
    snapshot = find_snapshot(to)
    if snapshot is None:
        raise SnapshotFailedError("it was deleted while it was created")
    return snapshot


def _pack_failure(outcome: Outcome) -> Exception:
    """tar reads the machine's files, and writes to the host's disk."""
    if os.strerror(errno.ENOSPC) in outcome.stderr:
        return OSError(errno.ENOSPC, outcome.stderr[-300:])
    return SnapshotFailedError(outcome.stderr[-300:] or f"tar ended with {outcome.code}")


async def _pack(isolation: Isolation, script: str, draft: Path, timeout_sec: float) -> Outcome:
    command = ["/bin/sh", "-c", script]
    wrapped = isolation.wrap(command, system_at=_SYSTEM, capabilities=_READS_ITS_OWN)
    with draft.open("wb") as file:
        outcome = await run(wrapped, timeout_sec=timeout_sec, stdout=file.fileno())
        os.fsync(file.fileno())
    return outcome


async def restore(isolation: Isolation, source: Path, *, timeout_sec: float) -> bool:
    """Unpack into the empty workspace. False if some paths are too long for tar, which need
    `unpacked`; the others may be there already."""
    try:
        with source.open("rb") as file:
            program = " ".join(_decompressor(file.fileno()))
            owners, rights = ([*_NO_OWNERS], _READS_ITS_OWN)
            if isolation.has_root:
                owners, rights = (["--numeric-owner", "--same-owner"], _OWNERS)
            unpack = [_TAR, *_ATTRIBUTES, "-xpf", "-", *owners]
            unpack.append(f"--use-compress-program={program}")
            wrapped = isolation.wrap(unpack, system_at=_RESTORED, capabilities=rights)
            outcome = await run(wrapped, timeout_sec=timeout_sec, stdin=file.fileno())
    except TimeoutError as error:
        raise SnapshotFailedError(f"it was not unpacked within {timeout_sec:g} s") from error
    except OSError as error:
        raise SnapshotFailedError("it can't be read") from error
    if outcome.code and os.strerror(errno.ENAMETOOLONG) in outcome.stderr:
        return False
    if outcome.code:
        raise SnapshotFailedError(outcome.stderr[-300:] or f"tar ended with {outcome.code}")
    return True


@asynccontextmanager
async def unpacked(isolation: Isolation, source: Path) -> AsyncIterator[int]:
    """A descriptor that reads the archive decompressed."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        try:
            with source.open("rb") as file:
                unpack = [*_decompressor(file.fileno()), "-c"]
                # Root, if there is one, starts in the user's folder.
                command = isolation.wrap(unpack, capabilities=_READS_ITS_OWN)
                process = await spawn(command, stdin=file.fileno(), stdout=writer)
        finally:
            os.close(writer)
        try:
            yield reader
        finally:
            await kill_tree(process)
    finally:
        os.close(reader)


def _decompressor(archive: int) -> tuple[str, ...]:
    """For this open archive, whose offset is not moved."""
    magic = os.pread(archive, len(_ZSTD_MAGIC), 0)
    return ("zstd", "-d") if magic == _ZSTD_MAGIC else ("gzip", "-d")


def _compressor() -> str:
    """zstd is ten times as fast; gzip is available everywhere."""
    return "zstd -q -1" if Path("/usr/bin/zstd").exists() else "gzip -1"
