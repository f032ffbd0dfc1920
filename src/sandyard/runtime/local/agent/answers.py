"""What an operation of the agent answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    result: Any = None
    data: bytes = b""
    descriptors: tuple[int, ...] = ()
    then: Callable[[], None] | None = None
    """Work to do after the answer was sent, in an operation that may take long."""
