"""The guest: what acts inside a machine, with the rights of its user.

The agent of a machine here imports it. Into a machine elsewhere it is sent, and run there by the
machine's own `python3`, 3.11 or later, so it knows the standard library and itself, and nothing
else of this project.
"""

import os

from .paths import WORKSPACE, Paths

HOME = os.path.expanduser("~")
STATE = os.path.join(HOME, ".sandyard")
"""Records of the machine's processes, and uploads that are not in place yet."""
PROCESSES = os.path.join(STATE, "processes")
EXIT = os.path.join(STATE, "exit")
"""The program's exit code, once it has ended."""
PATHS = Paths(os.path.join(HOME, "workspace"), names=(WORKSPACE,))
"""Those of a machine elsewhere."""


class RefusedError(Exception):
    """Why something is refused, where the system's own error does not say it."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message)
        self.code = code
