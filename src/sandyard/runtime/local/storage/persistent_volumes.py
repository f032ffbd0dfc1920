"""The files of volumes, which outlive machines: an ext4 image for each, or a folder if the server
is not root.

Whoever uses them holds a lock on the file or folder, as a writer alone or as one of several
readers. A machine's lasts for as long as it has them mounted, whatever the database says.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandyard.runtime.errors import VolumeBusyError, VolumeFilesMissingError, VolumeTooSmallError
from sandyard.runtime.local.jail.isolation import BoundVolume
from sandyard.runtime.local.jail.mount_namespace import MountNamespace
from sandyard.runtime.local.jail.user_namespaces import USER
from sandyard.runtime.local.storage.volumes import (
    copy_data,
    image_bytes,
    lock,
    make_image,
    mount_image,
    run_program,
)
from sandyard.runtime.records.run_folder import entries, remove_folder

_DRAFT = ".draft-"
_LOST_AND_FOUND = "lost+found"


class PersistentVolume:
    def __init__(self, folder: Path, volume_id: str, *, within_sec: float = 0) -> None:
        """A machine that has it may take this long to end."""
        self._within_sec = within_sec
        self._folder = folder
        self.path = folder / volume_id
        self._files = self.path / "files"
        self._limit = self.path / "limit"

    @property
    def is_image(self) -> bool:
        return self.path.is_file()

    def make(self, size_bytes: int, *, blanks: Path | None, now: float) -> None:
        """Empty, from a blank image if there is a folder of them; nothing if it exists. Raises
        OSError."""
        if self.path.exists():
            return
        draft = self._draft()
        if blanks is not None:
            make_image(draft, size_bytes, blanks=blanks, now=now)
        else:
            (draft / "files").mkdir(parents=True)
            (draft / "limit").write_text(str(size_bytes))
        draft.replace(self.path)

    def copy(self, source: "PersistentVolume") -> None:
        """VolumeBusyError while a machine may write to the source. Raises OSError."""
        if self.path.exists():
            return
        draft = self._draft()
        with source.locked(fcntl.LOCK_SH):
            if source.is_image:
                with source.path.open("rb") as whole, draft.open("wb") as target:
                    target.truncate(source.path.stat().st_size)
                    copy_data(whole.fileno(), target.fileno())
            else:
                run_program("cp", "-a", str(source.path), str(draft))
        draft.replace(self.path)

    def resize(self, size_bytes: int) -> None:
        """VolumeBusyError while a machine has it, VolumeTooSmallError. Raises OSError."""
        with self.locked(fcntl.LOCK_EX):
            if not self.is_image:
                self._limit.write_text(str(size_bytes))
                return
            whole = image_bytes(size_bytes)
            is_larger = whole > self.path.stat().st_size
            run_program("e2fsck", "-f", "-p", str(self.path), most=1)
            if is_larger:
                os.truncate(self.path, whole)
            try:
                run_program("resize2fs", str(self.path), f"{whole // 1024}K")
            except OSError as error:
                if is_larger:
                    raise
                raise VolumeTooSmallError from error
            os.truncate(self.path, whole)

    def remove(self) -> None:
        """VolumeBusyError while a machine has it."""
        with suppress(VolumeFilesMissingError), self.locked(fcntl.LOCK_EX):
            if self.is_image:
                self.path.unlink()
            else:
                remove_folder(self.path)

    def bind(
        self, at: Path, mounts: MountNamespace | None, user_namespace: int | None, *, writes: bool
    ) -> BoundVolume:
        """For a machine whose users are those of the namespace, until this process ends. Raises
        VolumeBusyError, VolumeFilesMissingError, OSError."""
        kind = fcntl.LOCK_EX if writes else fcntl.LOCK_SH
        try:
            if not self.is_image:
                lock(os.open(self._files, os.O_RDONLY | os.O_CLOEXEC), kind)
                limit = int(self._limit.read_text())
                return BoundVolume(self._files, limit, writes=writes, is_counted=True)
            if mounts is None or user_namespace is None:
                raise OSError("only a server that is root can mount it")
            at.mkdir(parents=True, exist_ok=True)
            mount_image(self.path, at, mounts, writes=writes)
            if writes:
                _hand_over(at)
            shifted = mounts.shifted(at, user_namespace, is_read_only=not writes)
            return BoundVolume(shifted, self.path.stat().st_size, writes=writes)
        except BlockingIOError as error:
            raise VolumeBusyError from error
        except FileNotFoundError as error:
            raise VolumeFilesMissingError from error

    @contextmanager
    def locked(self, kind: int) -> Iterator[None]:
        try:
            path = self.path if self.is_image else self._files
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise VolumeFilesMissingError from error
        try:
            lock(descriptor, kind, within_sec=self._within_sec)
            yield
        except BlockingIOError as error:
            raise VolumeBusyError from error
        finally:
            os.close(descriptor)

    def _draft(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._folder / f"{_DRAFT}{self.path.name}"
        if draft.is_dir():
            shutil.rmtree(draft)
        return draft


def stored_volumes(folder: Path) -> dict[str, float]:
    """When each was last written, by its id; also of what was left unfinished."""
    found = {}
    for path in entries(folder):
        with suppress(FileNotFoundError):
            found[path.name] = path.stat().st_mtime
    return found


def _hand_over(at: Path) -> None:
    """A new one is the user's."""
    if (at / _LOST_AND_FOUND).is_dir():
        with suppress(OSError):
            (at / _LOST_AND_FOUND).rmdir()
            os.chown(at, USER, USER)
