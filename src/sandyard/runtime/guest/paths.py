"""Paths as callers give them, and where they are for the agent."""

from dataclasses import dataclass

_WORKSPACE = "/workspace"
_HOME = "/home/user"
DRAFT = ".sandyard-"
"""Name prefix of files that are written before they are moved into place."""


@dataclass(frozen=True, slots=True)
class Paths:
    """`workspace` is the agent's path of the machine's `/workspace`: the same in isolation, a host
    folder without."""

    workspace: str

    def real_path(self, path: str) -> str:
        if self.workspace == _WORKSPACE:
            return path
        for name in (_WORKSPACE, _HOME):
            if path == name or path.startswith(f"{name}/"):
                return self.workspace + path[len(name) :]
        return path

    def as_seen(self, path: str) -> str:
        """The path as a caller knows it."""
        if path == self.workspace or path.startswith(f"{self.workspace}/"):
            return _WORKSPACE + path[len(self.workspace) :]
        return path
