"""Stopped sandboxes and archives in the store of files: what one node stored, another starts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.runtime.errors import SnapshotNotFoundError
from sandyard.runtime.local.server.machines import LocalMachines
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.programs.runner import ProgramRunner
from sandyard.runtime.programs.start import ProgramTimeouts
from sandyard.runtime.store.archives import ArchiveFolder
from sandyard.runtime.store.errors import ObjectDamagedError, StoreUnavailableError
from sandyard.runtime.store.folder import FolderObjects
from sandyard.runtime.store.layers import Layers
from sandyard.runtime.store.model import OBJECTS
from tests.support.runtime.programs import LIMITS, STATIC, new_run_id
from tests.support.runtime.sessions import pieces, read_all

MakeNode = Callable[[str], ProgramRunner]


@pytest.fixture
def node(tmp_path: Path) -> MakeNode:
    """Nodes by name that share a store."""

    def make(name: str) -> ProgramRunner:
        folder, clock = tmp_path / name, SystemClock()
        folder.mkdir(exist_ok=True)
        objects = FolderObjects(tmp_path / "share")
        layers = Layers(objects, remembered=folder / "snapshot-store")
        machines = LocalMachines(folder, LocalOptions(), clock, layers)
        archives = ArchiveFolder(folder / "archives", None, layers)
        return ProgramRunner(machines, machines.records, archives, ProgramTimeouts(), clock)

    return make


async def test_a_stopped_sandbox_starts_on_another_node(node: MakeNode, tmp_path: Path) -> None:
    here, there = node("here"), node("there")
    first, second = new_run_id(), new_run_id()
    await here.start(first, STATIC, LIMITS)
    await (await here.session(first)).files.write("deep/kept", pieces(b"content"), mode=0o755)
    ended = await here.stop(first)
    assert ended.snapshot is not None
    again = replace(STATIC, snapshot_id=ended.snapshot.id)
    with pytest.raises(SnapshotNotFoundError):
        await there.start(second, again, LIMITS)
    await here.store_snapshot(ended.snapshot.id)
    assert await there.has_snapshot(ended.snapshot.id)
    assert [each.id for each in await there.list_snapshots()] == [ended.snapshot.id]
    (tmp_path / "share").rename(tmp_path / "away")
    with pytest.raises(StoreUnavailableError):
        await there.start(second, again, LIMITS)
    assert await there.refresh(second) is None, "nothing was begun"
    (tmp_path / "away").rename(tmp_path / "share")
    await there.start(second, again, LIMITS)
    session = await there.session(second)
    assert await read_all(session, "deep/kept") == b"content"
    assert (await session.files.stat("deep/kept")).mode == 0o755
    await there.stop(second)
    await there.delete_snapshot(ended.snapshot.id)
    assert not await there.has_snapshot(ended.snapshot.id)


async def test_damaged_files_are_not_started(node: MakeNode, tmp_path: Path) -> None:
    here, there = node("here"), node("there")
    first, second = new_run_id(), new_run_id()
    await here.start(first, STATIC, LIMITS)
    ended = await here.stop(first)
    assert ended.snapshot is not None
    await here.store_snapshot(ended.snapshot.id)
    (stored,) = [path for path in (tmp_path / "share" / OBJECTS).rglob("*") if path.is_file()]
    stored.write_bytes(stored.read_bytes()[:-1] + b"!")
    with pytest.raises(ObjectDamagedError):
        await there.start(second, replace(STATIC, snapshot_id=ended.snapshot.id), LIMITS)
    assert await there.refresh(second) is None


async def test_an_archive_starts_sandboxes_of_all_nodes(node: MakeNode, tmp_path: Path) -> None:
    here, there = node("here"), node("there")
    first, second = new_run_id(), new_run_id()
    await here.start(first, STATIC, LIMITS)
    await (await here.session(first)).files.write("kept", pieces(b"content"))
    (tmp_path / "here" / "snapshot-store").write_text("")
    (tmp_path / "share").write_text("not a folder")
    with pytest.raises(StoreUnavailableError):
        await here.save_archive(first, "one")
    (tmp_path / "share").unlink()
    # a moment later: uploads fail at once for some seconds after a failure
    here = node("here")
    saved = await here.save_archive(first, "one")
    assert [(each.id, each.size_bytes) for each in await there.list_archives()] == [
        (saved.id, saved.size_bytes)
    ]
    await there.start(second, replace(STATIC, archive_id="one"), LIMITS)
    assert await read_all(await there.session(second), "kept") == b"content"
    for runtime, run_id in ((here, first), (there, second)):
        await runtime.stop(run_id)
    await there.delete_archive("one")
    assert await there.list_archives() == []


async def test_a_file_that_is_nowhere_holds_up_no_end(node: MakeNode) -> None:
    here = node("here")
    await here.store_snapshot("sandbox.gone.1")
    assert not await here.has_snapshot("sandbox.gone.1")
