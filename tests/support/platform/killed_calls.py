"""A server that is killed after it has made what it was asked for and before it has recorded any
answer.

`python -m tests.support.platform.killed_calls <database URL or -> <data dir> <now> <calls as JSON>`
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandyard.kit.idempotency import Record
from sandyard.kit.sql.idempotency import SqlRecords
from tests.fakes.runtime import FakeRuntime
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import platform_api


class DyingRecords:
    """Kills the process once this many answers are to be recorded."""

    def __init__(self, records: SqlRecords, answers: int) -> None:
        self.add, self.find, self.prune = records.add, records.find, records.prune
        self._records = records
        self._answers = answers

    async def replace(self, before: Record, after: Record | None) -> bool:
        if after is None or after.status is None:
            return await self._records.replace(before, after)
        self._answers -= 1
        if not self._answers:
            os.kill(os.getpid(), signal.SIGKILL)
        return await asyncio.Future()


async def _serve(
    url: str | None, data_dir: Path, now: float, calls: list[Mapping[str, Any]]
) -> None:
    runtime = FakeRuntime(data_dir / "machines")
    async with platform_api(url, data_dir, ManualClock(now), runtime=runtime) as api:
        idempotency = api.part.guard.idempotency
        records = DyingRecords(idempotency.records, len(calls))  # type: ignore[arg-type]
        object.__setattr__(idempotency, "records", records)
        answers = await asyncio.gather(
            *(
                api.client.post(each["path"], json=each["body"], headers=each["headers"])
                for each in calls
            )
        )
        sys.exit(f"nobody was killed: {[each.text for each in answers]}")


if __name__ == "__main__":
    given, folder, time, sent = sys.argv[1:]
    url = None if given == "-" else given
    asyncio.run(_serve(url, Path(folder), float(time), json.loads(sent)))
