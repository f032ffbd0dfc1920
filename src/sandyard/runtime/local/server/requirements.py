"""Requirements of sandboxes on the host."""

import os
import shutil
from collections.abc import Sequence
from functools import cache

from sandyard.runtime.errors import IsolationMissingError
from sandyard.runtime.local.jail.isolation import PATH
from sandyard.runtime.local.records.run_folder import IsolationMode
from sandyard.runtime.local.server.isolation_check import check_isolation
from sandyard.runtime.local.server.options import LocalOptions


def missing_for_sandboxes(mode: IsolationMode) -> Sequence[str]:
    """A line for each problem that keeps sandboxes from starting here."""
    lines = [f"Sandboxes can't start. {line}" for line in _missing_isolation(mode)]
    if shutil.which("git", path=PATH) is None:
        lines.append("Sandboxes can't start from templates: git is missing. Install git.")
    return lines


def missing_for_previews(mode: IsolationMode) -> Sequence[str]:
    return [f"Previews can't start. {line}" for line in _missing_isolation(mode)]


@cache
def _missing_isolation(mode: IsolationMode) -> Sequence[str]:
    uid = LocalOptions().uids[0] if os.geteuid() == 0 else None
    try:
        check_isolation(mode, uid=uid)
    except IsolationMissingError as error:
        return [error.message]
    return []
