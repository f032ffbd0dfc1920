"""The runtime of sandboxes: this machine, E2B, or a Kubernetes cluster."""

import os
from importlib.util import find_spec
from pathlib import Path

from sandyard.kit.clock import Clock
from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.wiring import local_runtime
from sandyard.runtime.e2b.control import E2bControl
from sandyard.runtime.e2b.errors import translation
from sandyard.runtime.e2b.machines import E2bMachines, E2bOptions
from sandyard.runtime.kubernetes.api import ApiAddress, KubernetesApi
from sandyard.runtime.kubernetes.machines import KubernetesMachines
from sandyard.runtime.kubernetes.manifest import PodOptions
from sandyard.runtime.local.root_filesystems.images import IMAGES, ImageRoots
from sandyard.runtime.local.server.machines import LocalMachines
from sandyard.runtime.ports import Runtime
from sandyard.runtime.programs.runner import ProgramRunner
from sandyard.runtime.programs.start import ProgramTimeouts
from sandyard.runtime.records.disk_reserve import DiskReserve
from sandyard.runtime.records.run_folder import RunFolders
from sandyard.runtime.remote.http import HttpPool
from sandyard.runtime.store.archives import ArchiveFolder
from sandyard.runtime.store.folder import FolderObjects
from sandyard.runtime.store.layers import Layers, NoLayers, ReadOnlyLayers
from sandyard.runtime.store.model import Kind
from sandyard.runtime.store.ports import ObjectStore
from sandyard.runtime.store.s3 import S3Objects
from sandyard.settings import E2bSettings, KubernetesSettings, SandboxSettings, SettingsError
from sandyard.settings.fields import words
from sandyard.settings.platform import READ_ONLY
from sandyard.wiring.addresses import PROGRAM_PORT
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
    control = E2bControl(
        e2b_key(e2b, needed_for="SANDBOX_RUNTIME=e2b"),
        domain=e2b.e2b_domain,
        api_url=e2b.e2b_api_url,
        sandbox_url=e2b.e2b_sandbox_url,
        pool=pool,
        translate=translation,
    )
    machines = E2bMachines(
        folder,
        control,
        E2bOptions(node, template=e2b.e2b_template, port=e2b.e2b_port),
        clock=clock,
    )
    archives = ArchiveFolder(folder / "archives", disk_reserve(settings, data_dir), layers)
    return ProgramRunner(machines, RunFolders(folder), archives, program_timeouts(settings), clock)


_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def open_kubernetes_machines(
    settings: SandboxSettings,
    kubernetes: KubernetesSettings,
    data_dir: Path,
    clock: Clock,
    layers: NoLayers,
) -> KubernetesMachines:
    """Raises SettingsError."""
    if settings.snapshot_store is None:
        raise SettingsError("SNAPSHOT_STORE: must be set for SANDBOX_RUNTIME=kubernetes")
    folder = data_dir / "runtime-kubernetes"
    reserve = disk_reserve(settings, data_dir)
    return KubernetesMachines(
        KubernetesApi(_api_address(kubernetes)),
        _pod_options(kubernetes),
        ArchiveFolder(folder / "snapshots", reserve, layers, "snapshots"),
        clock=clock,
        start_timeout_sec=kubernetes.kubernetes_start_timeout_sec,
        lost_sec=kubernetes.kubernetes_lost_sec,
    )


def open_kubernetes_runtime(
    machines: KubernetesMachines,
    settings: SandboxSettings,
    data_dir: Path,
    clock: Clock,
    layers: NoLayers,
) -> Runtime:
    folder, reserve = data_dir / "runtime-kubernetes", disk_reserve(settings, data_dir)
    archives = ArchiveFolder(folder / "archives", reserve, layers)
    return ProgramRunner(machines, machines.records, archives, program_timeouts(settings), clock)


def _api_address(settings: KubernetesSettings) -> ApiAddress:
    url, token_file = settings.kubernetes_url, settings.kubernetes_token_file
    ca_file = settings.kubernetes_ca_file
    if url is None:
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        if host is None:
            raise SettingsError("KUBERNETES_URL: must be set outside a cluster")
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        token_file = token_file or str(_SERVICE_ACCOUNT / "token")
        ca_file = ca_file or str(_SERVICE_ACCOUNT / "ca.crt")
    return ApiAddress(
        url,
        settings.kubernetes_namespace,
        Path(token_file) if token_file else None,
        Path(ca_file) if ca_file else None,
    )


def _pod_options(settings: KubernetesSettings) -> PodOptions:
    if settings.kubernetes_agent_image is None:
        raise SettingsError("KUBERNETES_AGENT_IMAGE: must be set for SANDBOX_RUNTIME=kubernetes")
    return PodOptions(
        settings.kubernetes_agent_image,
        settings.kubernetes_image,
        images=named(settings.kubernetes_images),
        gvisor_class=settings.kubernetes_gvisor_class,
        priority_class=settings.kubernetes_priority_class,
        port=PROGRAM_PORT,
    )


def named(text: str) -> dict[str, str]:
    """The pairs of a variable: `name=value`, comma-separated."""
    return dict(each.split("=", 1) for each in words(text) if "=" in each)
