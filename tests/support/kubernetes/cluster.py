"""A cluster to run machines in: the stand-in, or the one that KUBERNETES_TEST_URL names."""

import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, cached_property
from pathlib import Path

from sandyard.e2b_api.envd.standalone.bundle import build
from sandyard.kit.clock import Clock, SystemClock
from sandyard.runtime.kubernetes.api import ApiAddress, KubernetesApi
from sandyard.runtime.kubernetes.egress import ProxyAddress
from sandyard.runtime.kubernetes.machines import KubernetesMachines
from sandyard.runtime.kubernetes.manifest import PodOptions
from sandyard.runtime.programs.runner import ProgramRunner
from sandyard.runtime.programs.start import ProgramTimeouts
from sandyard.runtime.store.archives import ArchiveFolder
from sandyard.runtime.store.folder import FolderObjects
from sandyard.runtime.store.layers import Layers
from tests.support.kubernetes.api_server import NAMESPACE, TOKEN, ApiServer
from tests.support.kubernetes.nodes import AGENT_IMAGE, DEBIAN, Nodes

_built: list[tempfile.TemporaryDirectory[str]] = []


@cache
def agent_folder() -> Path:
    """Built once; removed with this process."""
    _built.append(tempfile.TemporaryDirectory(prefix="sandyard-agent-"))
    folder = Path(_built[-1].name) / "agent"
    build(folder)
    return folder


class Cluster:
    def __init__(self, folder: Path, nodes: int, *, has_networks: bool = True) -> None:
        self.api = ApiServer()
        names = [f"node-{number}" for number in range(1, nodes + 1)]
        self.nodes = Nodes(self.api, agent_folder(), names, has_networks=has_networks)
        self.folder = folder
        self._servers = 0
        self._clients: list[KubernetesApi] = []
        self.opened: list[KubernetesMachines] = []

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        await self.api.start(tls)
        self.nodes.start()

    async def close(self) -> None:
        for machines in self.opened:
            await machines.close()
        for client in self._clients:
            await client.close()
        await self.nodes.stop()
        await self.api.stop()

    @property
    def token_file(self) -> Path:
        file = self.folder / "token"
        file.write_text(TOKEN)
        return file

    def client(self, url: str | None = None) -> KubernetesApi:
        client = KubernetesApi(ApiAddress(url or self.api.url, NAMESPACE, self.token_file))
        self._clients.append(client)
        return client

    def machines(
        self,
        *,
        url: str | None = None,
        lost_sec: float = 600,
        clock: Clock | None = None,
        proxy: ProxyAddress | None = None,
    ) -> tuple[KubernetesMachines, ArchiveFolder]:
        """Those of a server of its own, with a disk of its own."""
        self._servers += 1
        disk = self.folder / f"server-{self._servers}"
        disk.mkdir(parents=True)
        folders = {"snapshots": disk / "snapshots", "archives": disk / "archives"}
        store = FolderObjects(self.folder / "store")
        layers = Layers(store, remembered=disk / "store", caches=folders)  # type: ignore[arg-type]
        machines = KubernetesMachines(
            self.client(url),
            PodOptions(AGENT_IMAGE, DEBIAN, images={"distroless": "distroless", "lost": "lost"}),
            ArchiveFolder(folders["snapshots"], layers=layers, kind="snapshots"),
            clock=clock or SystemClock(),
            start_timeout_sec=60,
            lost_sec=lost_sec,
            proxy=proxy,
        )
        self.opened.append(machines)
        return machines, ArchiveFolder(folders["archives"], layers=layers)

    @cached_property
    def shared(self) -> ProgramRunner:
        """That of a server which nobody else uses."""
        return self.runtime()

    def runtime(
        self,
        *,
        url: str | None = None,
        listen_timeout_sec: float = 20,
        lost_sec: float = 600,
        proxy: ProxyAddress | None = None,
    ) -> ProgramRunner:
        machines, archives = self.machines(url=url, lost_sec=lost_sec, proxy=proxy)
        timeouts = ProgramTimeouts(listen_timeout_sec=listen_timeout_sec)
        return ProgramRunner(machines, machines.records, archives, timeouts, SystemClock())


@asynccontextmanager
async def cluster(folder: Path, *, nodes: int = 1) -> AsyncIterator[Cluster]:
    found = Cluster(folder, nodes)
    await found.start()
    try:
        yield found
    finally:
        await found.close()
