"""Workspaces with a file system of their own: nothing of it is left over, whoever is killed."""

import asyncio
import os
import resource
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sandyard.runtime.local.host.processes import descendants
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.local.storage.volumes import make_image
from sandyard.runtime.model import Running
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import (
    LIMITS,
    OBEDIENT,
    end_all,
    inside,
    new_run_id,
    send,
    started,
    until_ended,
)


def devices_of(folder: Path) -> list[str]:
    """The loop devices over files below the folder, also over deleted ones."""
    listed = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(folder) in line]


async def until_no_device_is_left(folder: Path) -> None:
    async with asyncio.timeout(20):
        while devices_of(folder):
            await asyncio.sleep(0.05)


async def test_an_image_is_seen_by_its_supervisor_alone(
    runtime: LocalRuntime, tmp_path: Path
) -> None:
    async with started(runtime) as running:
        await inside(runtime, running, "open('mine', 'w').write('x')")
        assert (runtime.workspace_of(running.run_id) / "mine").exists()
        assert list(runtime.folder_of(running.run_id).workspace.iterdir()) == []
        assert str(tmp_path) not in Path("/proc/mounts").read_text()
        assert len(devices_of(tmp_path)) == 1
    await until_no_device_is_left(tmp_path)


async def test_nothing_is_left_of_a_killed_supervisor_and_its_files_are_kept(
    runtime: LocalRuntime, tmp_path: Path
) -> None:
    """Its end is recorded by another, which mounts the image only when it is free."""
    run_id = new_run_id()
    running = await runtime.start(run_id, OBEDIENT, LIMITS)
    await inside(runtime, running, "open('kept', 'w').write('x' * 5_000_000)")
    supervisor = runtime.folder_of(run_id).supervisor_pid()
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    ended = await until_ended(runtime, run_id)
    assert ended.snapshot is not None, ended.snapshot_error
    again = replace(OBEDIENT, snapshot_id=ended.snapshot.id)
    async with started(runtime, again) as restored:
        assert await inside(runtime, restored, "print(len(open('kept').read()))") == "5000000"
    await end_all(runtime)
    await until_no_device_is_left(tmp_path)


async def test_all_killed_at_once_leave_no_device(runtime: LocalRuntime, tmp_path: Path) -> None:
    run_id = new_run_id()
    await runtime.start(run_id, OBEDIENT, LIMITS)
    supervisor = runtime.folder_of(run_id).supervisor_pid()
    assert supervisor is not None
    for pid in (*descendants(supervisor), supervisor):
        with suppress(ProcessLookupError):  # it ended with one before it
            os.kill(pid, signal.SIGKILL)
    await until_no_device_is_left(tmp_path)
    assert (await until_ended(runtime, run_id)).reason in ("exited", "killed")


async def test_an_image_that_was_never_filled_is_closed(
    runtime: LocalRuntime, tmp_path: Path
) -> None:
    """As one whose supervisor was killed before it had made the first folder."""
    run_id = new_run_id()
    await runtime.start(run_id, OBEDIENT, LIMITS)
    folder = runtime.folder_of(run_id)
    supervisor = folder.supervisor_pid()
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    await until_no_device_is_left(tmp_path)
    folder.image.unlink()  # late writes of the old device must not reach the new image
    make_image(folder.image, LIMITS.storage_bytes, blanks=tmp_path, now=time.time())
    assert (await until_ended(runtime, run_id, within_sec=30)).reason == "killed"


async def test_files_in_memory_are_bounded_and_snapshotted(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path / "runtime", LocalOptions(volume="tmpfs"))
    limits = replace(LIMITS, storage_bytes=10 << 20)
    run_id = new_run_id()
    running = await runtime.start(run_id, OBEDIENT, limits)
    fill = "open('x', 'w').write('y')\ntry: open('large', 'wb').write(bytes(10 << 20))"
    code = fill + "\nexcept OSError as error: print(error.errno)"
    assert await inside(runtime, running, code) == "28"
    assert await inside(runtime, running, "import os; os.remove('large')") == ""
    ended = await runtime.stop(run_id)
    assert ended.snapshot is not None, ended.snapshot_error
    again = replace(OBEDIENT, snapshot_id=ended.snapshot.id)
    async with started(runtime, again) as restored:
        assert await inside(runtime, restored, "print(open('x').read())") == "y"
    await end_all(runtime)


async def test_a_supervisor_without_descriptors_ends_nothing_and_watches_on(
    runtime: LocalRuntime,
) -> None:
    """It was told as `its time was over` once. What can't be looked at is not taken for none."""
    async with started(runtime) as running:
        supervisor = runtime.folder_of(running.run_id).supervisor_pid()
        assert supervisor is not None
        before = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (3, before[1]))
        await asyncio.sleep(1.5)
        assert isinstance(await runtime.refresh(running.run_id), Running)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, before)
        held = "import os, time; [os.fork() for _ in range(3)]; x = bytes(1) * (90 << 20)"
        await send(runtime, running, held + "; y = bytearray(x); time.sleep(60)")
        assert (await until_ended(runtime, running.run_id)).reason == "out_of_memory"
