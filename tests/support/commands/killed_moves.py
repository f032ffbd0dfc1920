"""Moves that are killed: `python -m tests.support.commands.killed_moves DATA_DIR POSTGRES_URL`.

Each move is a process of its own, forked from one that has everything imported, and kills itself
with SIGKILL after one of its steps. Prints a line of JSON for each: the step, and which engines
were open after the kill, and after the next process went on or back.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from sandyard.entrypoints.server.data_dir import locked
from tests.support.storage.filled_stores import settings_on
from tests.support.storage.moves import Mover

HERE, THERE = "sqlite", "postgresql"
PARTS = ("broker",)


def run(data_dir: Path, url: str) -> None:
    source, target, step, killed = HERE, THERE, 0, True
    while killed:
        step += 1
        killed = in_process(data_dir, url, source, target, kill_at=step) == -signal.SIGKILL
        opened = open_engines(data_dir, url)
        is_back = step % 3 == 0 and killed and not opened["broker"]
        if killed:
            is_ended = all(each == [target] for each in opened.values())
            if not is_ended:
                assert in_process(data_dir, url, source, target, back=is_back) == 0
            if not is_back:
                source, target = target, source
        after = open_engines(data_dir, url)
        line = {"step": step, "open": opened, "after": after, "expected": source}
        if killed:
            sys.stdout.write(json.dumps(line) + "\n")


def in_process(
    data_dir: Path, url: str, source: str, target: str, *, kill_at: int = 0, back: bool = False
) -> int:
    """The exit code, or minus the signal, of a move in another process."""

    def kill(step: int) -> None:
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        mover = Mover(settings_on(postgres_url=url), data_dir, kill)
        with locked(data_dir):
            asyncio.run(mover.move(source, target, parts=PARTS, back=back))

    return forked(work)


def forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def open_engines(data_dir: Path, url: str) -> dict[str, list[str]]:
    async def find() -> dict[str, list[str]]:
        mover = Mover(settings_on(postgres_url=url), data_dir)
        return {part: await mover.open_engines(part, HERE, THERE) for part in PARTS}

    return asyncio.run(find())


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2])
