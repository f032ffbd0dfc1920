"""Paths as callers give them, and where the machine has them."""

import os
from typing import NamedTuple

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
        """The path as a caller knows it."""
        path = os.path.normpath(path)
        if path == self.workspace or path.startswith(f"{self.workspace}/"):
            path = WORKSPACE + path[len(self.workspace) :]
        return as_text(path)


def as_text(path: str) -> str:
    """Replaces bytes that are not text: such a file is listed, but can't be addressed."""
    return os.fsencode(path).decode(errors="replace")
