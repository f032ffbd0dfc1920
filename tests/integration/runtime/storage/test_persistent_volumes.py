"""Volumes in machines of this host: their files outlive machines, and one writer excludes all."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.runtime.errors import (
    StartFailedError,
    VolumeBusyError,
    VolumeFilesMissingError,
    VolumesUnsupportedError,
    VolumeTooSmallError,
)
from sandyard.runtime.local.server.machines import LocalMachines
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.local.server.volumes import LocalVolumes
from sandyard.runtime.model import Ended, IsolationMode, Limits, MachineSpec, Mount, RunId
from sandyard.runtime.records.disk_reserve import DiskReserve
from sandyard.runtime.sessions.ports import Session
from tests.support.runtime.sessions import shell

LIMITS = Limits(
    cpu=1, memory_bytes=192 << 20, processes=64, storage_bytes=64 << 20, max_running_sec=600
)
SIZE = 24 << 20


def _volumes(folder: Path, options: LocalOptions, seconds: float) -> LocalVolumes:
    reserve = DiskReserve(folder, 0)
    return LocalVolumes(folder, options, SystemClock(), reserve, within_sec=seconds)


class Host:
    def __init__(self, folder: Path, isolation: IsolationMode = "bubblewrap") -> None:
        options = LocalOptions(isolation=isolation)
        self.folder = folder
        self.machines = LocalMachines(folder, options, SystemClock())
        self.with_patience = partial(_volumes, folder, options)
        self.volumes = self.with_patience(30)
        self._made: list[RunId] = []

    async def start(
        self, *mounts: Mount, isolation: IsolationMode | None = None
    ) -> tuple[RunId, Session]:
        run_id = RunId("sandbox", "box", str(len(self._made)))
        self._made.append(run_id)
        await self.machines.create(
            run_id, MachineSpec(LIMITS, 600, mounts=mounts, isolation=isolation)
        )
        return run_id, await self.machines.session(run_id)

    async def end(self, *run_ids: RunId) -> None:
        for run_id in run_ids or self._made:
            await self.machines.stop(run_id)
            async with asyncio.timeout(30):
                while not isinstance(await self.machines.refresh(run_id), Ended | None):
                    await asyncio.sleep(0.02)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    host = Host(tmp_path / "runtime")
    yield host
    await host.end()


async def words(session: Session, command: str) -> Sequence[str]:
    return (await shell(session, command)).decode().split()


@pytest.mark.parametrize("isolation", ["bubblewrap", "gvisor"])
async def test_files_outlive_machines_and_are_their_users_in_each(
    host: Host, isolation: IsolationMode
) -> None:
    await host.volumes.create("vol-1", SIZE)
    mounts = (Mount("vol-1", "/data/shop"),)
    run_id, session = await host.start(*mounts, isolation=isolation)
    assert await words(session, "echo one > /data/shop/file; mkdir /data/shop/below; id -un") == [
        "user"
    ]
    await host.end(run_id)
    (first, reader), (_, other) = [
        await host.start(Mount("vol-1", path, is_read_only=True), isolation=isolation)
        for path in ("/data", "/workspace/data")
    ]
    shown = "cat {0}/file; stat -c %U {0}/file {0}; touch {0}/new 2>/dev/null || echo refused"
    expected = ["one", "user", "user", "refused"]
    assert await words(reader, shown.format("/data")) == expected
    for path in ("/workspace/data", "/home/user/data"):
        assert await words(other, shown.format(path)) == expected
    await host.end(first)
    assert await words(other, "cat /workspace/data/file") == ["one"]


async def test_a_writer_excludes_all_others_whoever_says_that_it_may_start(host: Host) -> None:
    await host.volumes.create("vol-1", SIZE)
    await host.start(Mount("vol-1", "/data"))
    impatient = host.with_patience(0)
    for refused in (
        impatient.resize("vol-1", 2 * SIZE),
        impatient.delete("vol-1"),
        impatient.create("vol-2", SIZE, copy_of="vol-1"),
    ):
        with pytest.raises(VolumeBusyError):
            await refused
    missing = Mount("vol-3", "/data")
    with pytest.raises(VolumeFilesMissingError):
        await host.start(missing)


async def test_the_kernel_enforces_its_size_which_can_be_changed(host: Host) -> None:
    await host.volumes.create("vol-1", SIZE)
    fill = "head -c {} /dev/zero 2>/dev/null > /data/{} && echo written || echo full"
    run_id, session = await host.start(Mount("vol-1", "/data"))
    assert await words(session, fill.format(SIZE - (1 << 20), "most")) == ["written"]
    assert await words(session, fill.format(SIZE, "rest")) == ["full"]
    await shell(session, "rm /data/rest")
    await host.end(run_id)
    with pytest.raises(VolumeTooSmallError):
        await host.volumes.resize("vol-1", SIZE // 2)
    await host.volumes.resize("vol-1", 4 * SIZE)
    run_id, session = await host.start(Mount("vol-1", "/data"))
    assert await words(session, fill.format(2 * SIZE, "rest")) == ["written"]
    await shell(session, "rm /data/most /data/rest; echo kept > /data/kept")
    await host.end(run_id)
    await host.volumes.resize("vol-1", SIZE)
    _, session = await host.start(Mount("vol-1", "/data"))
    assert await words(session, "cat /data/kept") == ["kept"]


async def test_a_copy_has_the_files_of_then(host: Host) -> None:
    await host.volumes.create("vol-1", SIZE)
    run_id, session = await host.start(Mount("vol-1", "/data"))
    await shell(session, "echo then > /data/file")
    await host.end(run_id)
    await host.volumes.create("vol-2", SIZE, copy_of="vol-1")
    run_id, session = await host.start(Mount("vol-1", "/data"), Mount("vol-2", "/then"))
    await shell(session, "echo now > /data/file")
    assert await words(session, "cat /data/file /then/file") == ["now", "then"]
    await host.end(run_id)
    await host.volumes.delete("vol-2")
    await host.volumes.delete("vol-2")
    assert list(await host.volumes.written_at()) == ["vol-1"]


async def test_a_link_of_its_own_files_does_not_lead_a_volume_elsewhere(host: Host) -> None:
    await host.volumes.create("vol-1", SIZE)
    run_id, session = await host.start()
    await shell(session, "ln -s /etc /workspace/trap")
    await host.machines.pack(run_id, packed := host.folder / "packed")
    await host.end(run_id)
    spec = MachineSpec(LIMITS, 600, mounts=(Mount("vol-1", "/workspace/trap"),), packed=packed)
    with pytest.raises(StartFailedError, match=r"Not a directory|Too many levels"):
        await host.machines.create(RunId("sandbox", "trapped", "1"), spec)


async def test_without_isolation_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(VolumesUnsupportedError):
        await Host(tmp_path / "runtime", "none").volumes.create("vol-1", SIZE)
