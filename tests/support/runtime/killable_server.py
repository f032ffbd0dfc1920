"""A stand-in for the server, to be killed: starts one program, says so, and waits for its end.

`python -m tests.support.runtime.killable_server <folder> <attempt> <max_running_sec> <isolation>`
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import RunId
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, OBEDIENT


async def _serve(folder: Path, attempt: str, max_running_sec: float, isolation: str) -> None:
    options = LocalOptions(isolation=cast("Literal['bubblewrap', 'none']", isolation))
    runtime = LocalRuntime(folder, options)
    limits = replace(LIMITS, max_running_sec=max_running_sec)
    running = await runtime.start(RunId("sandbox", "box", attempt), OBEDIENT, limits)
    sys.stdout.write(f"{running.port}\n")
    sys.stdout.flush()
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4]))
