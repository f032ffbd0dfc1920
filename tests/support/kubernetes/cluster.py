"""A cluster to run machines in: the stand-in, or the one that KUBERNETES_TEST_URL names."""

import asyncio
import fcntl
import json
import os
import shutil
import ssl
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path

import httpx

import sandyard
from sandyard.e2b_api.envd.standalone.bundle import build
from sandyard.kit.clock import Clock, SystemClock
from sandyard.runtime.kubernetes.api import ApiAddress, Kind, KubernetesApi
from sandyard.runtime.kubernetes.egress import ProxyAddress
from sandyard.runtime.kubernetes.informer import Informer
from sandyard.runtime.kubernetes.machines import KubernetesMachines
from sandyard.runtime.kubernetes.manifest import SELECTOR, PodImage, PodOptions
from sandyard.runtime.kubernetes.model import is_up
from sandyard.runtime.programs.runner import ProgramRunner
from sandyard.runtime.programs.start import ProgramTimeouts
from sandyard.runtime.store.archives import ArchiveFolder
from sandyard.runtime.store.folder import FolderObjects
from sandyard.runtime.store.layers import Layers
from tests.support.kubernetes.admission import NAMESPACE, ROOT_NAMESPACE
from tests.support.kubernetes.api_server import TOKEN, ApiServer
from tests.support.kubernetes.nodes import AGENT_IMAGE, DEBIAN, DISTROLESS, Nodes

URL = "KUBERNETES_TEST_URL"
_ROOT = Path(__file__).parents[3]
_UNUSED_SEC = 3600
"""After this an agent of other sources is removed."""


@cache
def agent_folder() -> Path:
    """That of these sources, built once for all processes that test them."""
    digest = sha256(sys.version.encode() + (_ROOT / "uv.lock").read_bytes())
    for file in sorted(Path(sandyard.__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    folder = _ROOT / ".tools" / "agents" / digest.hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for old in folder.parent.iterdir():
                if old.is_dir() and old.stat().st_mtime < time.time() - _UNUSED_SEC:
                    shutil.rmtree(old)
            draft = folder.with_name("draft")
            shutil.rmtree(draft, ignore_errors=True)
            build(draft)
            draft.rename(folder)
        os.utime(folder)
    return folder


class AnyCluster(ABC):
    """One that runs somewhere: servers of it, and what a test does to it."""

    options = PodOptions(
        AGENT_IMAGE,
        PodImage(DEBIAN),
        images={
            "distroless": PodImage(DISTROLESS),
            "lost": PodImage("lost"),
            "root": PodImage(DEBIAN, has_root=True),
            "read-only": PodImage(DEBIAN, is_read_only=True, runtime_class="kata"),
        },
        root_namespace=ROOT_NAMESPACE,
    )

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._servers = 0
        self._clients: list[KubernetesApi] = []
        self.opened: list[KubernetesMachines] = []

    @property
    @abstractmethod
    def address(self) -> ApiAddress: ...

    async def close(self) -> None:
        for machines in self.opened:
            await machines.close()
        for client in self._clients:
            await client.close()

    @abstractmethod
    async def kill(self, name: str) -> None:
        """End this Pod at once, as a failure of its node would."""

    @abstractmethod
    def count_running(self) -> int: ...

    def client(self, url: str | None = None, namespace: str | None = None) -> KubernetesApi:
        address = self.address
        namespace = namespace or address.namespace
        client = KubernetesApi(replace(address, url=url or address.url, namespace=namespace))
        self._clients.append(client)
        return client

    def machines(
        self,
        *,
        url: str | None = None,
        lost_sec: float = 600,
        start_timeout_sec: float = 60,
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
            self.options,
            ArchiveFolder(folders["snapshots"], layers=layers, kind="snapshots"),
            clock=clock or SystemClock(),
            start_timeout_sec=start_timeout_sec,
            lost_sec=lost_sec,
            proxy=proxy,
            of_root=self.client(url, root) if (root := self.options.root_namespace) else None,
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


class Cluster(AnyCluster):
    """The stand-in."""

    def __init__(self, folder: Path, nodes: int, *, has_networks: bool = True) -> None:
        super().__init__(folder)
        self.api = ApiServer()
        names = [f"node-{number}" for number in range(1, nodes + 1)]
        self.nodes = Nodes(self.api, agent_folder(), names, has_networks=has_networks)

    @property
    def address(self) -> ApiAddress:
        file = self.folder / "token"
        file.write_text(TOKEN)
        return ApiAddress(self.api.url, NAMESPACE, file)

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        await self.api.start(tls)
        self.nodes.start()

    async def close(self) -> None:
        await super().close()
        await self.nodes.stop()
        await self.api.stop()

    async def kill(self, name: str) -> None:
        await self.nodes.kill(name)

    def count_running(self) -> int:
        return self.nodes.count_running()


class RealCluster(AnyCluster):
    """The one that the environment names. Its namespace is for the tests alone: each begins with
    none of our Pods there, and leaves none."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.options = PodOptions(
            os.environ["KUBERNETES_AGENT_IMAGE"],
            PodImage(os.environ["KUBERNETES_IMAGE"]),
            priority_class=os.environ.get("KUBERNETES_PRIORITY_CLASS"),
        )
        self._pods = Informer(self.client(), "pods")

    @property
    def address(self) -> ApiAddress:
        names = ("KUBERNETES_TOKEN_FILE", "KUBERNETES_CA_FILE")
        files = (Path(value) if (value := os.environ.get(name)) else None for name in names)
        return ApiAddress(os.environ[URL], os.environ["KUBERNETES_NAMESPACE"], *files)

    async def start(self) -> None:
        await self._clear()
        await self._pods.synced()

    async def close(self) -> None:
        await self._clear()
        await self._pods.close()
        await super().close()

    async def kill(self, name: str) -> None:
        await self._delete("pods", name)

    def count_running(self) -> int:
        return sum(is_up(pod) for pod in self._pods.objects.values())

    async def _clear(self) -> None:
        api = self.client()
        kinds: tuple[Kind, ...] = ("pods", "secrets", "persistentvolumeclaims")
        for kind in kinds:
            while (found := await api.list(kind, selector=SELECTOR))[0]:
                for each in found[0]:
                    await self._delete(kind, each["metadata"]["name"])
                await asyncio.sleep(0.2)

    async def _delete(self, kind: Kind, name: str) -> None:
        address = self.address
        url = f"{address.url}/api/v1/namespaces/{address.namespace}/{kind}/{name}"
        token = address.token_file.read_text().strip() if address.token_file else ""
        verify = ssl.create_default_context(cafile=address.ca_file)
        async with httpx.AsyncClient(verify=verify) as client:
            body = json.dumps({"gracePeriodSeconds": 0})
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            answer = await client.request("DELETE", url, content=body, headers=headers)
            assert answer.status_code in (200, 202, 404), answer.text


@asynccontextmanager
async def any_cluster(folder: Path) -> AsyncIterator[AnyCluster]:
    """For tests that do nothing to its nodes."""
    if URL not in os.environ:
        async with cluster(folder) as stand_in:
            yield stand_in
        return
    real = RealCluster(folder)
    await real.start()
    try:
        yield real
    finally:
        await real.close()


@asynccontextmanager
async def cluster(folder: Path, *, nodes: int = 1) -> AsyncIterator[Cluster]:
    found = Cluster(folder, nodes)
    await found.start()
    try:
        yield found
    finally:
        await found.close()
