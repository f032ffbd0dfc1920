"""The errors of a move."""

from sandyard.kit.errors import SandyardError


class MoveError(SandyardError):
    """The data can't be moved."""

    code = "MOVE_FAILED"
