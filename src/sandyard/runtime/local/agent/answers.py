"""What an operation of the agent answers, or refuses with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class RefusedError(Exception):
    """The operation was refused for a reason that has a code."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Answer:
    result: Any = None
    data: bytes = b""
    descriptors: tuple[int, ...] = ()
    then: Callable[[], None] | None = None
    """Work to do after the answer was sent, in an operation that may take long."""
