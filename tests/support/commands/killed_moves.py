"""Moves that are killed: `python -m tests.support.commands.killed_moves JSON`.

The JSON has the fields of `Kills`. Each move is a process of its own, forked from one that has
everything imported, and kills itself with SIGKILL after one of its steps. The first move goes from
`here` to `there`, and each next one from where the data is then: both directions are killed. Prints
a line of JSON for each: the step, and which engines were open after the kill, and after the next
process went on or back.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sandyard.entrypoints.server.data_dir import locked
from tests.support.storage.filled_stores import settings_on
from tests.support.storage.moves import Mover


@dataclass
class Kills:
    data_dir: str
    postgres_url: str
    dynamo_url: str
    table: str
    here: str
    there: str
    parts: Sequence[str]
    every: int = 1
    """Only each so-manieth step."""

    def mover(self, crash: Callable[[int], None] = lambda _step: None) -> Mover:
        settings = settings_on(
            postgres_url=self.postgres_url, dynamo_url=self.dynamo_url, table=self.table
        )
        return Mover(settings, Path(self.data_dir), crash)

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    def run(self) -> None:
        source, target, step, killed = self.here, self.there, 0, True
        while killed:
            step += self.every
            killed = self._in_process(source, target, kill_at=step) == -signal.SIGKILL
            opened = self._open_engines()
            is_ended = all(each == [target] for each in opened.values())
            is_back = killed and step // self.every % 3 == 0 and not any(opened.values())
            if killed and not is_ended:
                assert self._in_process(source, target, back=is_back) == 0
            if not is_back:
                source, target = target, source
            after = self._open_engines()
            line = {"step": step, "open": opened, "after": after, "expected": source}
            print(json.dumps(line | {"killed": killed}), flush=True)  # noqa: T201 - for the test

    def _in_process(self, source: str, target: str, *, kill_at: int = 0, back: bool = False) -> int:
        """The exit code, or minus the signal, of a move in another process."""

        def kill(step: int) -> None:
            if step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        def work() -> None:
            mover = self.mover(kill)
            with locked(Path(self.data_dir)):
                asyncio.run(mover.move(source, target, parts=self.parts, back=back))

        return forked(work)

    def _open_engines(self) -> dict[str, list[str]]:
        async def find() -> dict[str, list[str]]:
            mover = self.mover()
            return {
                part: await mover.open_engines(part, self.here, self.there) for part in self.parts
            }

        return asyncio.run(find())


def forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    Kills(**json.loads(sys.argv[1])).run()
