"""The guest: what acts inside a machine, with the rights of its user.

The agent of a machine here imports it. Into a machine elsewhere it is sent, and run there by the
machine's own `python3`, 3.11 or later, so it knows the standard library and itself, and nothing
else of this project.
"""

import json
import os
import sys
from typing import Any, NamedTuple

WORKSPACE = "/workspace"
DRAFT = ".sandyard-"
"""Name prefix of files that are written before they are moved into place."""


class Paths(NamedTuple):
    """`workspace` is the real path of the machine's `/workspace`; callers may use all these names
    for it."""

    workspace: str
    names: tuple[str, ...] = (WORKSPACE, "/home/user")

    def real_path(self, path: str) -> str:
        if self.workspace == WORKSPACE:
            return path
        for name in self.names:
            if path == name or path.startswith(f"{name}/"):
                return self.workspace + path[len(name) :]
        return path

    def as_seen(self, path: str) -> str:
        path = os.path.normpath(path)
        if path == self.workspace or path.startswith(f"{self.workspace}/"):
            path = WORKSPACE + path[len(self.workspace) :]
        return as_text(path)


HOME = os.path.expanduser("~")
STATE = os.path.join(HOME, ".sandyard")
"""Records of the machine's processes, and uploads that are not in place yet."""
PROCESSES = os.path.join(STATE, "processes")
PATHS = Paths(os.path.join(HOME, "workspace"), names=(WORKSPACE,))
"""Those of a machine elsewhere."""


class RefusedError(Exception):
    """Why something is refused, where the system's own error does not say it."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message)
        self.code = code


def as_text(path: str) -> str:
    """Replaces bytes that are not text: such a file is listed, but can't be addressed."""
    return os.fsencode(path).decode(errors="replace")


def write_line(line: dict[str, Any]) -> None:
    """A response of the guest to a machine elsewhere."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
