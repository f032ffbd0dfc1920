"""The runtime of a Kubernetes cluster, and its egress proxy, by the settings."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.observability.metrics import Gauges, Labelled
from sandyard.platform.wiring.local_runtime import local_options
from sandyard.platform.wiring.runtimes import disk_reserve, named, program_timeouts
from sandyard.runtime.errors import RuntimeUnavailableError
from sandyard.runtime.kubernetes.api import ApiAddress, KubernetesApi
from sandyard.runtime.kubernetes.egress import ProxyAddress
from sandyard.runtime.kubernetes.egress_policy import ProxySettings
from sandyard.runtime.kubernetes.egress_proxy import PodsEgressProxy
from sandyard.runtime.kubernetes.informer import Informer
from sandyard.runtime.kubernetes.machines import KubernetesMachines
from sandyard.runtime.kubernetes.manifest import PodImage, PodOptions
from sandyard.runtime.kubernetes.model import PodState
from sandyard.runtime.ports import Runtime
from sandyard.runtime.programs.runner import ProgramRunner
from sandyard.runtime.store.archives import ArchiveFolder
from sandyard.runtime.store.layers import NoLayers
from sandyard.settings import KubernetesSettings, SandboxSettings, SettingsError
from sandyard.wiring.addresses import PROGRAM_PORT

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def open_machines(
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
    options, address = _pod_options(kubernetes), _api_address(kubernetes)
    if any(each.has_root for each in options.images.values()) and options.root_namespace is None:
        raise SettingsError("KUBERNETES_ROOT_NAMESPACE: must be set for images with root")
    return KubernetesMachines(
        KubernetesApi(address),
        options,
        ArchiveFolder(folder / "snapshots", reserve, layers, "snapshots"),
        clock=clock,
        start_timeout_sec=kubernetes.kubernetes_start_timeout_sec,
        lost_sec=kubernetes.kubernetes_lost_sec,
        proxy=_proxy_address(kubernetes),
        of_root=_of_root(kubernetes),
    )


def open_runtime(
    machines: KubernetesMachines,
    settings: SandboxSettings,
    data_dir: Path,
    clock: Clock,
    layers: NoLayers,
) -> Runtime:
    folder, reserve = data_dir / "runtime-kubernetes", disk_reserve(settings, data_dir)
    archives = ArchiveFolder(folder / "archives", reserve, layers)
    return ProgramRunner(machines, machines.records, archives, program_timeouts(settings), clock)


async def pod_gauges(machines: KubernetesMachines) -> Gauges:
    now = machines.clock.now()
    counts: dict[tuple[str, ...], float] = {(state,): 0 for state in get_args(PodState)}
    ages = dict(counts)
    try:
        states = await machines.pod_states()
    except RuntimeUnavailableError:
        return {}
    for state, since in states:
        counts[state,] += 1
        ages[state,] = max(ages[state,], now - since)
    return {
        "sandyard_pods": ("Pods by state", Labelled(("state",), counts)),
        "sandyard_pods_oldest_seconds": (
            "How long a Pod has been in this state, at most",
            Labelled(("state",), ages),
        ),
    }


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


def _of_root(settings: KubernetesSettings) -> KubernetesApi | None:
    if (namespace := settings.kubernetes_root_namespace) is None:
        return None
    return KubernetesApi(replace(_api_address(settings), namespace=namespace))


def _proxy_address(settings: KubernetesSettings) -> ProxyAddress | None:
    if (service := settings.kubernetes_egress_proxy) is None:
        return None
    return ProxyAddress(service, settings.kubernetes_egress_replicas or service)


@asynccontextmanager
async def serving_egress(
    settings: SandboxSettings, kubernetes: KubernetesSettings, *, host: str, port: int
) -> AsyncIterator[asyncio.Server]:
    """The egress proxy of all Pods. Raises SettingsError."""
    api = KubernetesApi(_api_address(kubernetes))
    options = local_options(settings)
    allowed = ProxySettings(
        options.allowed_hosts, options.egress_networks, options.allowed_networks
    )
    apis = [api, *filter(None, [_of_root(kubernetes)])]
    pods = Informer(api, "pods", *apis[1:])
    proxy = PodsEgressProxy(pods, allowed, SystemClock())
    following = asyncio.create_task(proxy.follow())
    try:
        await pods.synced()
        async with await asyncio.start_server(proxy, host, port) as server:
            yield server
    finally:
        following.cancel()
        await pods.close()
        for each in apis:
            await each.close()


def _pod_options(settings: KubernetesSettings) -> PodOptions:
    if settings.kubernetes_agent_image is None:
        raise SettingsError("KUBERNETES_AGENT_IMAGE: must be set for SANDBOX_RUNTIME=kubernetes")
    try:
        images = {
            name: PodImage.of(each) for name, each in named(settings.kubernetes_images).items()
        }
    except ValueError as error:
        raise SettingsError(f"KUBERNETES_IMAGES: {error}") from error
    return PodOptions(
        settings.kubernetes_agent_image,
        PodImage(settings.kubernetes_image),
        images=images,
        root_namespace=settings.kubernetes_root_namespace,
        gvisor_class=settings.kubernetes_gvisor_class,
        priority_class=settings.kubernetes_priority_class,
        volume_class=settings.kubernetes_volume_class,
        port=PROGRAM_PORT,
    )
