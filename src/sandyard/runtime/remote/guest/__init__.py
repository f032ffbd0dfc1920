"""The guest: what acts inside a machine elsewhere, with the rights of its user.

It is sent there and run by the machine's own `python3`, 3.11 or later, so it knows the standard
library and itself, and nothing else of this project.
"""

import os

HOME = os.path.expanduser("~")
STATE = os.path.join(HOME, ".sandyard")
"""Records of the machine's processes, and uploads that are not in place yet."""
PROCESSES = os.path.join(STATE, "processes")
EXIT = os.path.join(STATE, "exit")
"""The program's exit code, once it has ended."""
WORKSPACE = os.path.join(HOME, "workspace")
_SHOWN = "/workspace"


class RefusedError(Exception):
    """Why something is refused, where the system's own error does not say it."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message)
        self.code = code


def real_path(path: str) -> str:
    """Where the machine has a path of the caller."""
    if path == _SHOWN or path.startswith(_SHOWN + "/"):
        return WORKSPACE + path[len(_SHOWN) :]
    return path


def shown_path(path: str) -> str:
    """The path as the caller knows it. Bytes that are not text are replaced."""
    whole = os.path.normpath(path)
    if whole == WORKSPACE or whole.startswith(WORKSPACE + "/"):
        whole = _SHOWN + whole[len(WORKSPACE) :]
    return as_text(whole)


def as_text(name: str) -> str:
    return name.encode(errors="surrogateescape").decode(errors="replace")
