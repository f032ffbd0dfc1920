"""A server that is killed when a start on this machine is about to record that it runs; its
supervisor lives on.

`python -m tests.support.platform.killed_starts <data dir> <sandbox id> <headers as JSON>`
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from sandyard.runtime.records.run_folder import RunFolder
from tests.support.clocks import RunningClock
from tests.support.platform.in_process import platform_api

put = RunFolder.put


async def put_or_die(
    self: RunFolder, name: str, record: dict[str, Any], *, durable: bool = True
) -> None:
    if name == "running":
        os.kill(os.getpid(), signal.SIGKILL)
    await put(self, name, record, durable=durable)


async def _serve(data_dir: Path, sandbox_id: str, headers: dict[str, str]) -> None:
    async with platform_api(None, data_dir, RunningClock()) as api:
        path = f"/api/v1/sandboxes/{sandbox_id}/start"
        answer = await api.client.post(path, headers=headers)
        sys.exit(f"it was not killed: {answer.text}")


if __name__ == "__main__":
    RunFolder.put = put_or_die  # type: ignore[method-assign]
    folder, sandbox, sent = sys.argv[1:]
    asyncio.run(_serve(Path(folder), sandbox, json.loads(sent)))
