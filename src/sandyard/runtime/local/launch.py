"""Inside the sandbox, first: starts the program, then the relay beside it.

This file and `relay.py` are copied into the sandbox and run by its own Python, so they know only
the standard library. The program starts before the relay's imports are paid for.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
from typing import Any, NoReturn


def start_program(job: dict[str, Any]) -> int:
    """Start the program in a session and with limits of its own; its pid."""
    pid = os.fork()
    if pid == 0:
        _exec(job)
    return pid


def _exec(job: dict[str, Any]) -> NoReturn:
    try:
        os.setsid()
        os.nice(job["nice"])
        _raise_oom_score()
        for name, value in job["rlimits"].items():
            limit = getattr(resource, name)
            hardest = resource.getrlimit(limit)[1]
            value = value if hardest == resource.RLIM_INFINITY else min(value, hardest)
            resource.setrlimit(limit, (value, value))
        os.chdir(job["folder"])
        os.execve(job["command"][0], job["command"], job["environment"])  # noqa: S606 - our task
    except BaseException as error:
        os.write(2, f"cannot start: {error}\n".encode())
    os._exit(127)


def _raise_oom_score() -> None:
    """If the machine runs out of memory, let the kernel take this program and not the server."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123 - as below
            score.write("1000")
    except OSError:
        return


def main(descriptor: int) -> int:
    control = socket.socket(fileno=descriptor)
    with control.makefile("rb", buffering=0) as lines:  # unbuffered: later words stay in the socket
        job = json.loads(lines.readline())
    for kept in (descriptor, job["listener"]):
        os.set_inheritable(kept, False)  # noqa: FBT003 - it takes no name
    pid = start_program(job)

    sys.path.insert(0, os.path.dirname(__file__))  # noqa: PTH120 - pathlib costs ten milliseconds
    import relay  # type: ignore[import-not-found]  # the copy beside this one

    code: int = relay.Relay(job, control, pid).run()
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
