"""A separate uid for each sandbox, so that its limits and permissions never affect another."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from zlib import crc32

from sandyard.kit.errors import ExhaustedError


class NoUidLeftError(ExhaustedError):
    """All uids for sandboxes are in use. Remove sandboxes that have ended."""


class Uids:
    """Maps uids to runs: a link per uid, to the folder of the run. When that folder is gone the uid
    is free again."""

    def __init__(self, folder: Path, uids: Sequence[int]) -> None:
        self._folder = folder
        self._uids = uids

    def take(self, run_folder: Path) -> int:
        """Assign a uid to this folder, which exists."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = self._folder / "lock"
        file.touch(mode=0o600)
        file.chmod(0o600)  # who can read it can hold it; 0.2.0 made it readable for all
        with file.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            taken = {path.name for path in self._folder.iterdir()}
            for uid in self._in_order():
                link = self._folder / str(uid)
                if link.name in taken:
                    if link.exists():
                        continue
                    link.unlink()
                link.symlink_to(os.path.relpath(run_folder, self._folder))
                return uid
        raise NoUidLeftError

    def _in_order(self) -> Iterator[int]:
        """Servers start at different uids, because all processes of a uid count together."""
        first = crc32(os.fsencode(self._folder)) % len(self._uids)
        return chain(self._uids[first:], self._uids[:first])
