"""Storage of a workspace: a separate file system, or a folder in the data dir.

Mounts are made in the supervisor's own mount namespace. They vanish with its last process, so
nothing is left over when one is killed.
"""

import errno
import fcntl
import os
import struct
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

from sandyard.runtime.local.jail.mount_namespace import (
    BIND,
    NO_DEV,
    NO_SUID,
    READ_ONLY,
    MountNamespace,
)
from sandyard.runtime.local.records.run_folder import LocalRunFolder, Spec
from sandyard.runtime.local.storage.shared_files import note_use
from sandyard.runtime.records.run_folder import remove_folder

SYSTEM = "system"
"""A volume's folder for the machine's changes outside its workspace."""
_BYTES_PER_FILE = 8192
_FEWEST_FILES = 1024
_INODE_BYTES = 256
_LEAST_SPARE = 4 << 20
_PIECE = 1 << 20
_RELEASED_SEC = 30
_POLL_SEC = 0.01
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_CORRECTED = 1
"""e2fsck's codes up to this one mean that the file system is in order."""
_FORMAT = (
    *("-q", "-F", "-t", "ext4", "-m", "0", "-I", str(_INODE_BYTES)),
    # No journal: after a power cut it is repaired, and what was not synced may be lost.
    *("-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard"),
)
_CONTROL = "/dev/loop-control"
_CTL_GET_FREE = 0x4C82
_CONFIGURE = 0x4C0A
_READ_ONLY, _AUTOCLEAR = 1, 4
_INFO = "QQQQQIIII64s64s32sQQ"
_CONFIG_RESERVED = bytes(64)
_ATTEMPTS = 64


class FolderVolume:
    is_bounded = False
    """Whether the kernel itself enforces the limit."""
    is_on_disk = True
    """Whether its files use space of the disk."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def exists(self) -> bool:
        return self._workspace.is_dir()

    def attach(self, *, is_new: bool) -> None:
        """Make the files available at the workspace's path; here the server did. Raises OSError."""

    def remove(self) -> None:
        remove_folder(self._workspace)


class ImageVolume:
    """An ext4 file system in a sparse file, which takes only the space of its content."""

    is_bounded = True
    is_on_disk = True

    def __init__(self, image: Path, workspace: Path, mounts: MountNamespace, *, uid: int) -> None:
        """For an image made by `make_image`."""
        self._image = image
        self._workspace = workspace
        self._mounts = mounts
        self._uid = uid

    def exists(self) -> bool:
        return self._image.exists()

    def attach(self, *, is_new: bool) -> None:
        mount_image(self._image, self._workspace, self._mounts, is_new=is_new)
        if is_new:
            (self._workspace / "lost+found").rmdir()
            _hand_over(self._workspace, self._uid)

    def remove(self) -> None:
        """Its space is freed when the supervisor has ended, and with it the mount."""
        self._image.unlink(missing_ok=True)


class MemoryVolume:
    """A tmpfs. Its files are lost when the supervisor is killed."""

    is_bounded = True
    is_on_disk = False

    def __init__(
        self, workspace: Path, mounts: MountNamespace, *, uid: int, size_bytes: int
    ) -> None:
        self._workspace = workspace
        self._mounts = mounts
        self._uid = uid
        self._size_bytes = size_bytes
        self._is_attached = False

    def exists(self) -> bool:
        return self._is_attached

    def attach(self, *, is_new: bool) -> None:
        if is_new:
            options = f"mode=700,size={self._size_bytes},nr_inodes={file_count(self._size_bytes)}"
            self._mounts.mount("tmpfs", self._workspace, "tmpfs", NO_SUID | NO_DEV, options)
            _hand_over(self._workspace, self._uid)
            self._is_attached = True

    def remove(self) -> None:
        """It vanishes with the supervisor."""


class SplitVolume:
    """A volume with a folder for the workspace and one for the system beside it, under the same
    limit."""

    def __init__(
        self, whole: ImageVolume | MemoryVolume, at: Path, workspace: Path, mounts: MountNamespace
    ) -> None:
        self._whole = whole
        self._at = at
        self._workspace = workspace
        self._mounts = mounts
        self.is_bounded = whole.is_bounded
        self.is_on_disk = whole.is_on_disk

    def exists(self) -> bool:
        return self._whole.exists()

    def attach(self, *, is_new: bool) -> None:
        self._at.mkdir(mode=0o700, exist_ok=True)
        self._whole.attach(is_new=is_new)
        files = self._at / "files"
        if not files.exists():  # it is new, or its supervisor was killed before
            files.mkdir()
            _hand_over(files, self._workspace.stat().st_uid)
        (self._at / SYSTEM).mkdir(mode=0o755, exist_ok=True)
        self._mounts.mount(str(files), self._workspace, None, BIND)

    def remove(self) -> None:
        self._whole.remove()


Volume = FolderVolume | ImageVolume | MemoryVolume | SplitVolume
"""The files of one workspace."""


def make_image(image: Path, size_bytes: int, *, blanks: Path, now: float) -> None:
    """An empty image: a copy of a blank one of the same size, made at first use because formatting
    takes longer. Raises OSError."""
    whole = image_bytes(size_bytes)
    blank = blanks / f"{size_bytes}.ext4"
    if not blank.exists():
        blanks.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = blanks / f".{size_bytes}.{os.getpid()}.{threading.get_ident()}"
        with draft.open("wb") as file:
            file.truncate(whole)
        run_program("mke2fs", *_FORMAT, "-N", str(file_count(size_bytes)), str(draft))
        draft.replace(blank)
    note_use(blank, now=now)
    with blank.open("rb") as source, image.open("wb") as target:
        target.truncate(whole)
        copy_data(source.fileno(), target.fileno())


def copy_data(source: int, target: int) -> None:
    """Skips the holes, which are nearly all of it."""
    begin = 0
    while True:
        try:
            begin = os.lseek(source, begin, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        end = os.lseek(source, begin, os.SEEK_HOLE)
        while begin < end:
            piece = os.pread(source, min(end - begin, _PIECE), begin)
            os.pwrite(target, piece, begin)
            begin += len(piece)


def file_count(size_bytes: int) -> int:
    """How many files fit, however small they are."""
    return max(_FEWEST_FILES, size_bytes // _BYTES_PER_FILE)


def image_bytes(size_bytes: int) -> int:
    """The size of an image that can store this much besides its metadata."""
    spare = max(_LEAST_SPARE, size_bytes // 25)
    whole = size_bytes + spare + file_count(size_bytes) * _INODE_BYTES
    return whole // 4096 * 4096


def mount_image(
    path: Path, at: Path, mounts: MountNamespace, *, is_new: bool = False, writes: bool = True
) -> None:
    """Checked before, unless it is new or others read it. Raises OSError."""
    image = os.open(path, (os.O_RDWR if writes else os.O_RDONLY) | os.O_CLOEXEC)
    try:
        if writes:
            lock(image)
        is_alone = writes or _is_unlocked(image)
        if is_alone and not is_new:
            run_program("e2fsck", "-p", str(path), most=_CORRECTED)
        if not writes:
            lock(image, fcntl.LOCK_SH)
        device, name = _attach_loop_device(image, writes=writes)
        try:
            flags = NO_SUID | NO_DEV | (0 if writes else READ_ONLY)
            options = "discard,noinit_itable" if writes else ""
            mounts.mount(name, at, "ext4", flags, options)
        finally:
            os.close(device)
    finally:
        os.close(image)


def _is_unlocked(image: int) -> bool:
    """Then it is locked by this."""
    with suppress(BlockingIOError):
        fcntl.flock(image, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def lock(image: int, kind: int = fcntl.LOCK_EX, *, within_sec: float = _RELEASED_SEC) -> None:
    """Wait until no other mount of it is left that excludes this: two would corrupt it. The loop
    device shares the lock, so it is held for exactly as long as the file system is mounted."""
    until = time.monotonic() + within_sec
    while True:
        try:
            fcntl.flock(image, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(_POLL_SEC)
        else:
            return


def _hand_over(workspace: Path, uid: int) -> None:
    os.chown(workspace, uid, uid)
    workspace.chmod(0o700)


def run_program(program: str, *arguments: str, most: int = 0) -> None:
    """Raises OSError if its exit code is above `most`."""
    done = subprocess.run(  # noqa: S603
        [program, *arguments],
        env={"PATH": _PATH},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode > most:
        said = done.stderr.decode(errors="replace").strip()[-300:]
        raise OSError(f"{program} ended with {done.returncode}: {said}")


def volume_of(folder: LocalRunFolder, spec: Spec, mounts: MountNamespace | None) -> Volume:
    if spec.uid is None or mounts is None or spec.volume == "folder":
        return FolderVolume(folder.workspace)
    if spec.base_files is None:
        return _bounded(folder, spec, folder.workspace, mounts, uid=spec.uid)
    whole = _bounded(folder, spec, folder.volume, mounts, uid=0)
    return SplitVolume(whole, folder.volume, folder.workspace, mounts)


def _bounded(
    folder: LocalRunFolder, spec: Spec, at: Path, mounts: MountNamespace, *, uid: int
) -> ImageVolume | MemoryVolume:
    if spec.volume == "tmpfs":
        return MemoryVolume(at, mounts, uid=uid, size_bytes=spec.limits.storage_bytes)
    return ImageVolume(folder.image, at, mounts, uid=uid)


def _attach_loop_device(image: int, *, writes: bool) -> tuple[int, str]:
    """A loop device over the open file: its descriptor, which keeps it alive until it is mounted,
    and its path. The device keeps the file open, and with it a lock on the file. Raises OSError."""
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_ATTEMPTS):
            path = f"/dev/loop{fcntl.ioctl(control, _CTL_GET_FREE)}"
            device = os.open(path, (os.O_RDWR if writes else os.O_RDONLY) | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _CONFIGURE, _loop_config(image, writes=writes))
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # another process was faster
                    raise
            else:
                return device, path
    finally:
        os.close(control)
    raise OSError(errno.EBUSY, "no loop device is free")


def _loop_config(image: int, *, writes: bool) -> bytes:
    flags = _AUTOCLEAR if writes else _AUTOCLEAR | _READ_ONLY
    info = struct.pack(_INFO, 0, 0, 0, 0, 0, 0, 0, 0, flags, b"sandyard", b"", b"", 0, 0)
    return struct.pack("II", image, 0) + info + _CONFIG_RESERVED
