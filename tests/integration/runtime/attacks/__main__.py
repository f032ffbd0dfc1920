"""Runs all attacks, one after another.

`python3 -m tests.integration.runtime.attacks <folder>` prints each attack's name with `ok` or the
reason why it succeeded.
"""

import asyncio
import json
import signal
import sys
import traceback
from pathlib import Path

from tests.integration.runtime.attacks.all import ATTACKS
from tests.support.runtime.local_runtime import LocalRuntime


async def _run_all(folder: Path) -> None:
    runtime = LocalRuntime(folder / "runtime")
    for name, attack in ATTACKS.items():
        try:
            await attack(runtime, folder)
            outcome = "ok"
        except Exception:
            outcome = traceback.format_exc()
        sys.stdout.write(json.dumps([name, outcome]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    signal.alarm(400)
    asyncio.run(_run_all(Path(sys.argv[1])))
