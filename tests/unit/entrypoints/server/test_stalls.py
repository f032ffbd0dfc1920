"""A process whose event loop stands still is ended by the kernel."""

import signal
import subprocess
import sys

import pytest

_PROGRAM = """
import asyncio, re
from sandyard.entrypoints.server.loop_watch import end_if_stalled

async def main():
    watching = asyncio.create_task(end_if_stalled(1))
    await asyncio.sleep(1.5)
    {then}

asyncio.run(main())
"""
_HOLDS_THE_INTERPRETER = "re.match('(a*)*b', 'a' * 50)"


@pytest.mark.parametrize(
    ("then", "code"),
    [(_HOLDS_THE_INTERPRETER, -signal.SIGALRM), ("watching.cancel(); await asyncio.sleep(1.5)", 0)],
)
def test_it_is_ended_while_it_stalls_and_not_before(then: str, code: int) -> None:
    command = [sys.executable, "-c", _PROGRAM.format(then=then)]
    assert subprocess.run(command, timeout=60, check=False).returncode == code
