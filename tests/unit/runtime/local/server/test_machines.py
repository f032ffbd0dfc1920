"""Who waits for a process or a pipe sees its end at once."""

import asyncio
import os
import subprocess
import time
from pathlib import Path

from sandyard.kit.clock import SystemClock
from sandyard.runtime.local.records.run_folder import LocalRunFolder
from sandyard.runtime.local.server.machines import (
    LocalMachines,
    becomes_readable,
    process_descriptor,
)
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import RunId


async def test_an_end_is_waited_for() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not await becomes_readable(process_descriptor(process.pid))
        asyncio.get_running_loop().call_later(0.01, process.kill)
        assert await becomes_readable(process_descriptor(process.pid))
    missing = process_descriptor(2**22 + 1)
    assert missing is None
    assert not await becomes_readable(missing), "it is unknown whether it ever existed"


async def test_the_end_of_a_pipe_is_seen_at_once() -> None:
    """The shortest of some tries: a busy machine makes any of them longer, and none shorter."""
    seconds = []
    for _ in range(5):
        reader, writer = os.pipe()
        asyncio.get_running_loop().call_later(0.01, os.close, writer)
        begun = time.monotonic()
        assert await becomes_readable(reader)
        seconds.append(time.monotonic() - begun)
    assert min(seconds) < 0.2


async def test_a_broken_record_hides_no_other_run(tmp_path: Path) -> None:
    machines = LocalMachines(tmp_path, LocalOptions(isolation="none"), SystemClock())
    whole, broken = [RunId("sandbox", each, "1") for each in ("whole", "broken")]
    for run_id in (whole, broken):
        folder = LocalRunFolder(machines.records.path_of(run_id))
        folder.path.mkdir(parents=True)
        folder.write_supervisor()
        if run_id == broken:
            (folder.path / "supervisor.json").write_text("{")
        os.utime(folder.path, (1, 1))
    assert set(await machines.versions("sandbox")) == {whole}
