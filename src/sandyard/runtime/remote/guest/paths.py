"""Where things are in the machine, and the paths as callers know them."""

import os

HOME = os.path.expanduser("~")
STATE = os.path.join(HOME, ".sandyard")
"""Records of the machine's processes, and uploads that are not in place yet."""
PROCESSES = os.path.join(STATE, "processes")
EXIT = os.path.join(STATE, "exit")
"""The program's exit code, once it has ended."""
WORKSPACE = os.path.join(HOME, "workspace")
_NAME = "/workspace"


def inside(path: str) -> str:
    if path == _NAME or path.startswith(_NAME + "/"):
        return WORKSPACE + path[len(_NAME) :]
    return path


def outside(path: str) -> str:
    """The path as the caller knows it. Bytes that are not text are replaced."""
    whole = os.path.normpath(path)
    if whole == WORKSPACE or whole.startswith(WORKSPACE + "/"):
        whole = _NAME + whole[len(WORKSPACE) :]
    return text(whole)


def text(name: str) -> str:
    return name.encode(errors="surrogateescape").decode(errors="replace")
