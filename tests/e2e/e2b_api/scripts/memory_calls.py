"""Pauses, snapshots and forks with memory and processes: what E2B promises, on a server whose
sandboxes have kernels of their own."""

import time
from typing import Any

from e2b import Sandbox

COUNT = """
import time
held = bytearray(b"x" * (20 << 20))
for count in range(100_000):
    print(count, len(held), flush=True)
    time.sleep(0.05)
"""


def main() -> None:
    sandbox = Sandbox.create(timeout=120, lifecycle={"on_timeout": "pause"})
    try:
        sandbox.files.write("count.py", COUNT)
        counter = sandbox.commands.run("python3 count.py", background=True)
        before = next_count(sandbox, counter.pid)
        forks(sandbox, counter.pid, before)
        assert sandbox.pause()
        assert sandbox.get_info().state == "paused"
        sandbox = sandbox.connect(timeout=120)
        after = next_count(sandbox, counter.pid)
        assert before < after < before + 2000, (before, after)
        times_out(sandbox, counter.pid)
        sandbox.pause(mode="filesystem")
        sandbox = sandbox.connect(timeout=60)
        assert counter.pid not in pids(sandbox)
        assert sandbox.files.read("count.py") == COUNT
    finally:
        sandbox.kill()


def forks(sandbox: Sandbox, pid: int, before: int) -> None:
    both: list[Any] = sandbox.fork(count=2, timeout=60)
    at_fork = next_count(sandbox, pid)
    for each in both:
        try:
            assert before < next_count(each, pid) < at_fork + 2000
            each.commands.kill(pid)
        finally:
            each.kill()
    assert pid in pids(sandbox)


def times_out(sandbox: Sandbox, pid: int) -> None:
    """Paused at its deadline, with its processes."""
    before = next_count(sandbox, pid)
    sandbox.set_timeout(1)
    until = time.monotonic() + 30
    while sandbox.get_info().state != "paused":
        assert time.monotonic() < until
        time.sleep(0.2)
    time.sleep(1)
    sandbox = sandbox.connect(timeout=60)
    assert before < next_count(sandbox, pid)


def pids(sandbox: Sandbox) -> list[int]:
    return [each.pid for each in sandbox.commands.list()]


def next_count(sandbox: Sandbox, pid: int) -> int:
    """What the counter prints next, with all that it holds."""
    follower = sandbox.commands.connect(pid)
    for stdout, _, _ in follower:
        if stdout and stdout.endswith("\n"):
            count, held = stdout.splitlines()[-1].split()
            assert int(held) == 20 << 20
            follower.disconnect()
            return int(count)
    raise AssertionError("it has ended")


main()
