"""Machines from images: their program, user, folder, variables and port."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.runtime.errors import EnvironmentMissingError, FileMissingError
from sandyard.runtime.images.library import ImageLibrary
from sandyard.runtime.images.model import Reference
from sandyard.runtime.images.registry import NamedRegistry, Registries
from sandyard.runtime.local.root_filesystems.images import IMAGES, ImageRoots
from sandyard.runtime.local.root_filesystems.store import RootFilesystems
from sandyard.runtime.model import ImageProgram, IsolationMode, Program
from sandyard.runtime.records.disk_reserve import DiskReserve
from sandyard.runtime.sessions.model import Command
from sandyard.runtime.sessions.ports import Session
from sandyard.runtime.store.archives import ArchiveFolder
from tests.support.runtime.images import SETTINGS, distroless, glibc, musl, with_shell
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, end_all, new_run_id
from tests.support.runtime.root_file_systems import (
    docker_archive,
    gzipped,
    image_config,
    member,
    tar,
)
from tests.support.services.registry import running_registry

ID, OTHER = "img-" + "a" * 17, "img-" + "b" * 17


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "runtime")
    yield runtime
    await end_all(runtime)


async def add(folder: Path, layer: bytes, image_id: str = ID, **config: Any) -> None:
    source = folder / "image.tar"
    source.write_bytes(docker_archive(layer, config=image_config(**config)))
    library = ImageLibrary(ArchiveFolder(folder / "runtime" / IMAGES), Registries())
    await library.add(image_id, source, most_bytes=1 << 30, progress=lambda *_: None)


async def read(session: Session, path: str) -> bytes:
    """Empty while it is missing."""
    try:
        return b"".join([piece async for piece in session.files.read(path)])
    except FileMissingError:
        return b""


@pytest.mark.parametrize("isolation", ["bubblewrap", "gvisor"])
async def test_a_machine_runs_what_its_image_runs_as_its_user(
    runtime: LocalRuntime, tmp_path: Path, isolation: IsolationMode
) -> None:
    """Of a single static program, without a shell; on port 80, as Docker allows."""
    await add(tmp_path, distroless(), **SETTINGS)
    program = Program(ImageProgram(), root=ID, isolation=isolation)
    running = await runtime.start(new_run_id(), program, LIMITS)
    assert running.port == 80
    assert running.program is not None
    assert running.program.status == "running", running.program
    answer = (await runtime.fetch(running, target="/who")).decode()
    assert answer.splitlines() == ["101", "33", "/data/inner", "hello /home/app"]
    session = await runtime.session(running.run_id)
    process = await session.processes.start(Command(("/busybox", "id", "-u")))
    await session.processes.wait(process.id)
    said = [each.data async for each in session.processes.output(process.id)]
    assert b"".join(said) == b"1000\n"


@pytest.mark.parametrize("layer", [with_shell, glibc, musl])
async def test_an_image_without_a_port_runs_at_once_and_root_is_its_user(
    runtime: LocalRuntime, tmp_path: Path, layer: Callable[[], bytes]
) -> None:
    command = ["/bin/sh", "-c", "echo by $HOME > /made; exec sleep 60"]
    await add(tmp_path, layer(), Cmd=command)
    running = await runtime.start(new_run_id(), Program(ImageProgram(), root=ID), LIMITS)
    assert running.program is not None
    assert running.program.status == "running", running.program
    session = await runtime.session(running.run_id)
    async with asyncio.timeout(10):
        while (found := await read(session, "/made")) == b"":
            await asyncio.sleep(0.02)
    assert found == b"by /root\n"
    assert (await session.files.stat("/made")).uid == 0


@pytest.mark.torture
@pytest.mark.timeout(900)
async def test_an_image_of_two_gigabytes_is_pulled_and_started() -> None:
    """In layers of each kind; on a disk, as it is more than a machine may have in memory."""
    with TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with running_registry(folder / "registry") as large:
            layers = [distroless()]
            packs: list[Callable[[bytes], bytes]] = [bytes, zstd, gzipped]
            layers += [pack(large_layer(kind)) for kind, pack in enumerate(packs)]
            large.push("large:1", *layers, config=image_config(**SETTINGS))
            registries = Registries([NamedRegistry.of(f"http://{large.host}")])
            library = ImageLibrary(ArchiveFolder(folder / "runtime" / IMAGES), registries)
            reference = Reference.of(f"{large.host}/large:1")
            stored = await library.pull(
                *(ID, reference, None),
                owned=(),
                most_bytes=4 << 30,
                progress=lambda *_: None,
            )
        runtime = LocalRuntime(folder / "runtime", prepare_timeout_sec=300)
        running = await runtime.start(new_run_id(), Program(ImageProgram(), root=ID), LIMITS)
        assert running.program is not None
        assert running.program.status == "running"
        assert RootFilesystems(folder / "runtime").get(ID).size_bytes >= 2 << 30
        assert stored.manifest.size_bytes > 1 << 30
        await end_all(runtime)


def large_layer(number: int) -> bytes:
    """A third of two gigabytes."""
    block = os.urandom(1 << 24)
    return tar(*(member(f"large/{number}/{each}", block) for each in range(43)))


def zstd(content: bytes) -> bytes:
    packed = subprocess.run(["zstd", "-q1c"], input=content, stdout=subprocess.PIPE, check=True)
    return packed.stdout


async def test_images_of_the_same_parts_share_a_root_and_unused_ones_go(tmp_path: Path) -> None:
    folder = tmp_path / "runtime"
    for image_id in (ID, OTHER):
        await add(tmp_path, distroless(), image_id, **SETTINGS)
    images = ImageRoots(folder, SystemClock(), DiskReserve(folder))
    sizes = await asyncio.gather(*(images.require(each) for each in (ID, OTHER, ID, OTHER)))
    assert len(set(sizes)) == 1
    roots = RootFilesystems(folder)
    first, second = (roots.get(each) for each in (ID, OTHER))
    assert first.root == second.root
    await images.keep_only([OTHER])
    assert roots.find(ID) is None
    assert roots.root_of(second).exists()
    await images.keep_only([])
    assert list((folder / "environments/roots").iterdir()) == []
    with pytest.raises(EnvironmentMissingError):
        await images.require("img-" + "c" * 17)
