"""How the agent launches a command: the arguments of `native/start.c`, and the failure it reports.

The program's file must not be readable where it runs: the kernel then prevents tracing, by which
others could take it over before its limits are set.
"""

import errno
import resource
import struct
from collections.abc import Mapping
from typing import Literal, NamedTuple

FAILURE_AT = 3
"""The descriptor for failures; it is closed when the command runs."""
FAILURE_BYTES = 16
NICE = 5
Step = Literal["limits", "folder", "program"]
_STEPS: tuple[Step, ...] = ("limits", "folder", "program")
_HIGHEST_ERRNO = 4095


class Failure(NamedTuple):
    """The step that failed, and its error."""

    step: Step
    errno: int


def launch_words(limits: Mapping[int, int]) -> list[str]:
    """The words before the folder, the program and its arguments."""
    return ["launch", *(str(each) for limit in limits.items() for each in limit), "--"]


def parse_failure(report: bytes) -> Failure:
    """Any process of the machine may have written it."""
    if len(report) != FAILURE_BYTES:
        return Failure("program", errno.EPERM)
    code, step = struct.unpack("<qq", report)
    known: Step = _STEPS[step] if 0 <= step < len(_STEPS) else "program"
    return Failure(known, max(0, min(-code, _HIGHEST_ERRNO)))


def format_failure(step: Step, number: int) -> bytes:
    """In the program's own format."""
    return struct.pack("<qq", -number, _STEPS.index(step))


def hard_limits(rlimits: Mapping[str, int]) -> dict[int, int]:
    """The limits by number, capped at what this process may set."""
    chosen: dict[int, int] = {}
    for name, value in rlimits.items():
        number: int = getattr(resource, name)
        hardest = resource.getrlimit(number)[1]
        chosen[number] = value if hardest == resource.RLIM_INFINITY else min(value, hardest)
    return chosen
