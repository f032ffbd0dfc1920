"""The runtime of sandboxes: this machine, E2B, or a Kubernetes cluster."""

from importlib.util import find_spec
from pathlib import Path

from sandyard.kit.clock import Clock
from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.wiring import local_runtime
from sandyard.runtime.e2b.control import E2bControl
from sandyard.runtime.e2b.errors import translation
from sandyard.runtime.e2b.machines import E2bMachines, E2bOptions
from sandyard.runtime.local.root_filesystems.images import IMAGES, ImageRoots
from sandyard.runtime.local.server.machines import LocalMachines
from sandyard.runtime.local.server.volumes import LocalVolumes
from sandyard.runtime.ports import Runtime
from sandyard.runtime.programs.runner import ProgramRunner
from sandyard.runtime.programs.start import ProgramTimeouts
from sandyard.runtime.records.disk_reserve import DiskReserve
from sandyard.runtime.records.run_folder import RunFolders
from sandyard.runtime.remote.errors import Translate
from sandyard.runtime.remote.http import HttpPool
from sandyard.runtime.store.archives import ArchiveFolder
from sandyard.runtime.store.folder import FolderObjects
from sandyard.runtime.store.layers import Layers, NoLayers, ReadOnlyLayers
from sandyard.runtime.store.model import Kind
from sandyard.runtime.store.ports import ObjectStore
from sandyard.runtime.store.s3 import S3Objects
from sandyard.settings import E2bSettings, SandboxSettings, SettingsError
from sandyard.settings.fields import words
from sandyard.settings.platform import READ_ONLY
from sandyard.wiring.engines import e2b_key


def open_layers(settings: SandboxSettings, data_dir: Path) -> NoLayers:
    """The store of files. Raises SettingsError."""
    address = settings.snapshot_store
    if address is None:
        return NoLayers()
    scheme, _, place = address.removeprefix(READ_ONLY).partition(":")
    if scheme == "file" and Path(place).resolve().is_relative_to(data_dir.resolve()):
        raise SettingsError("SNAPSHOT_STORE: must be outside the data dir, or be lost with it")
    if scheme == "s3" and find_spec("boto3") is None:
        raise SettingsError("SNAPSHOT_STORE: s3 needs `pip install sandyard[aws]`")
    objects: ObjectStore = (
        FolderObjects(Path(place)) if scheme == "file" else S3Objects(f"s3:{place}")
    )
    opened = ReadOnlyLayers if address.startswith(READ_ONLY) else Layers
    is_local = settings.sandbox_runtime == "local"
    folder = data_dir / ("runtime" if is_local else f"runtime-{settings.sandbox_runtime}")
    caches: dict[Kind, Path] = {
        "snapshots": folder / "snapshots",
        "archives": folder / "archives",
        "uploads": data_dir / "uploads",
        "images": folder / IMAGES,
    }
    return opened(objects, remembered=data_dir / "snapshot-store", caches=caches)


def open_image_roots(
    settings: SandboxSettings, data_dir: Path, clock: Clock, layers: NoLayers
) -> ImageRoots:
    most_bytes = int(settings.image_max_gb * GIGABYTE)
    reserve = disk_reserve(settings, data_dir)
    folder = local_runtime.runtime_folder(data_dir)
    return ImageRoots(folder, clock, reserve, layers, most_bytes=most_bytes)


def open_local_runtime(
    settings: SandboxSettings,
    data_dir: Path,
    clock: Clock,
    layers: NoLayers,
    images: ImageRoots,
) -> Runtime:
    folder = local_runtime.runtime_folder(data_dir)
    options = local_runtime.local_options(settings)
    machines = LocalMachines(folder, options, clock, layers, images)
    archives = ArchiveFolder(folder / "archives", disk_reserve(settings, data_dir), layers)
    return ProgramRunner(machines, machines.records, archives, program_timeouts(settings), clock)


def open_local_volumes(settings: SandboxSettings, data_dir: Path, clock: Clock) -> LocalVolumes:
    folder = local_runtime.runtime_folder(data_dir)
    options = local_runtime.local_options(settings)
    return LocalVolumes(folder, options, clock, disk_reserve(settings, data_dir))


def disk_reserve(settings: SandboxSettings, data_dir: Path) -> DiskReserve:
    return DiskReserve(data_dir, local_runtime.disk_reserve_bytes(settings))


def program_timeouts(settings: SandboxSettings) -> ProgramTimeouts:
    return ProgramTimeouts(
        prepare_timeout_sec=settings.sandbox_git_timeout_sec,
        listen_timeout_sec=settings.sandbox_listen_timeout_sec,
    )


def open_e2b_runtime(
    settings: SandboxSettings,
    e2b: E2bSettings,
    data_dir: Path,
    clock: Clock,
    *,
    node: str,
    pool: HttpPool,
    layers: NoLayers,
) -> Runtime:
    folder = data_dir / "runtime-e2b"
    control = open_e2b_control(e2b, pool, translation, needed_for="SANDBOX_RUNTIME=e2b")
    machines = E2bMachines(
        folder,
        control,
        E2bOptions(node, template=e2b.e2b_template, port=e2b.e2b_port),
        clock=clock,
    )
    archives = ArchiveFolder(folder / "archives", disk_reserve(settings, data_dir), layers)
    return ProgramRunner(machines, RunFolders(folder), archives, program_timeouts(settings), clock)


def open_e2b_control(
    e2b: E2bSettings, pool: HttpPool, translate: Translate, *, needed_for: str, repeats: int = 0
) -> E2bControl:
    """Raises SettingsError."""
    return E2bControl(
        e2b_key(e2b, needed_for=needed_for),
        domain=e2b.e2b_domain,
        api_url=e2b.e2b_api_url,
        sandbox_url=e2b.e2b_sandbox_url,
        pool=pool,
        translate=translate,
        repeats=repeats,
    )


def named(text: str) -> dict[str, str]:
    """The pairs of a variable: `name=value`, comma-separated."""
    return dict(each.split("=", 1) for each in words(text) if "=" in each)
