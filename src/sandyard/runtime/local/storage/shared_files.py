"""Files that machines share: made once, and removed a week after their last use."""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandyard.runtime.errors import RuntimeUnavailableError
from sandyard.runtime.local.records.run_folder import specs_in_use
from sandyard.runtime.records.run_folder import entries, remove_folder

logger = logging.getLogger(__name__)
BASE_FILES, BLANKS, CERTIFICATES = "skeletons", "blanks", "ca"
_UNUSED_SEC = 7 * 24 * 3600.0
_NOTED_SEC = 3600.0


def note_use(path: Path, *, now: float) -> None:
    """Update its mtime, at most once an hour."""
    with suppress(FileNotFoundError):
        if now - path.stat().st_mtime > _NOTED_SEC:
            os.utime(path)


def remove_unused(runtime_folder: Path, *, now: float) -> None:
    """Remove files that no unended machine uses and that none was started with for long. None, if a
    machine's record is broken: it may use any of them."""
    old = [path for path in _shared(runtime_folder) if now - _used_at(path) > _UNUSED_SEC]
    if not old:
        return
    try:
        specs = list(specs_in_use(runtime_folder))
    except RuntimeUnavailableError as error:
        logger.warning("unused files are kept", extra={"reason": error.reason})
        return
    used = {spec.base_files for spec in specs} | {spec.ca_file for spec in specs}
    for path in old:
        if str(path) not in used:
            remove_folder(path)


def _shared(runtime_folder: Path) -> Iterator[Path]:
    for name in (BASE_FILES, BLANKS, CERTIFICATES):
        yield from entries(runtime_folder / name)


def _used_at(path: Path) -> float:
    return path.lstat().st_mtime
