"""Each preview provider with what its tests need around it, so that one suite runs over all."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import httpx
import pytest

from sandyard.kit.errors import SandyardError
from sandyard.previews.errors import SandboxGoneError
from sandyard.previews.ports import PreviewProvider, PreviewSandbox
from sandyard.previews.providers.local import LocalPreviewProvider
from sandyard.previews.providers.remote import REPEATS, RemotePreviewProvider, translation
from sandyard.runtime.e2b.control import E2bControl, E2bTimeouts
from sandyard.runtime.model import Limits, RunId, Running, RunState
from sandyard.runtime.ports import Runtime
from sandyard.runtime.remote.backoff import Backoff
from tests.support.e2b.double import API_KEY, E2bDouble, e2b_double
from tests.support.kubernetes.cluster import AnyCluster, any_cluster
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, end_all
from tests.support.runtime.runtimes import page_through

PROVIDERS = ("local", pytest.param("kubernetes", marks=pytest.mark.torture), "e2b")
PAGE = {"index.html": b"<h1>one</h1>"}
HOUR = timedelta(hours=1)


class ProviderHost(Protocol):
    """A provider, and the machine or the service that it makes sandboxes on."""

    def connect(self) -> PreviewProvider:
        """What a server of its own would use; all of them know the same sandboxes."""
        ...

    def connect_from_another_node(self) -> PreviewProvider:
        """What a server on another machine uses, with the same database."""
        ...

    def outage(self) -> AbstractContextManager[PreviewProvider]:
        """What a server uses while it can't reach what the others reached before."""
        ...

    async def end_in(self, sandbox: PreviewSandbox, ttl: timedelta) -> None:
        """Move its end, as nobody but the provider's own user can."""
        ...

    async def page(self, sandbox: PreviewSandbox, path: str = "/") -> httpx.Response:
        """As a browser gets it. Raises httpx.TransportError if nothing answers."""
        ...


def local_provider(
    runtime: Runtime,
    *,
    node: str = "here",
    kind: type[LocalPreviewProvider] = LocalPreviewProvider,
    limits: Limits = LIMITS,
) -> LocalPreviewProvider:
    return kind(runtime, limits, node=node, url_of=_url_of, network="packages", hosts=".localhost")


def _url_of(running: Running) -> str:
    return f"http://{running.port}-{running.run_id.id}.localhost"


async def page_of_preview(
    provider: LocalPreviewProvider, sandbox: PreviewSandbox, path: str = "/"
) -> httpx.Response:
    """As a browser gets it through the gateway. Raises httpx.TransportError."""
    port = int(urlsplit(sandbox.preview_url).netloc.partition("-")[0])
    try:
        ports = await provider.ports(sandbox.sandbox_id)
    except SandyardError as error:
        raise httpx.ConnectError(str(error)) from error
    return await page_through(ports, port, path)


class LocalProviderHost:
    def __init__(self, folder: Path) -> None:
        self.runtime = LocalRuntime(folder / "runtime")
        self._folder = folder
        self._file = folder / "a file"
        self._file.touch()

    def connect(self) -> LocalPreviewProvider:
        return local_provider(LocalRuntime(self._folder / "runtime"))

    def connect_from_another_node(self) -> LocalPreviewProvider:
        return local_provider(LocalRuntime(self._folder / "other"), node="there")

    @contextmanager
    def outage(self) -> Iterator[LocalPreviewProvider]:
        yield local_provider(LocalRuntime(self._file / "runtime"))

    async def end_in(self, sandbox: PreviewSandbox, ttl: timedelta) -> None:
        run_id = RunId("preview", *sandbox.sandbox_id.split("."))
        await self.runtime.extend(run_id, deadline_at=time.time() + ttl.total_seconds())

    async def page(self, sandbox: PreviewSandbox, path: str = "/") -> httpx.Response:
        return await page_of_preview(self.connect(), sandbox, path)


class KubernetesProviderHost:
    """Every server has the same previews."""

    def __init__(self, found: AnyCluster) -> None:
        self._cluster = found
        self._runtimes: list[Runtime] = []

    def connect(self) -> LocalPreviewProvider:
        self._runtimes.append(self._cluster.runtime())
        return local_provider(self._runtimes[-1], node="kubernetes-default")

    def connect_from_another_node(self) -> LocalPreviewProvider:
        return self.connect()

    @contextmanager
    def outage(self) -> Iterator[LocalPreviewProvider]:
        runtime = self._cluster.runtime(url="http://127.0.0.1:9")
        yield local_provider(runtime, node="kubernetes-default")

    async def end_in(self, sandbox: PreviewSandbox, ttl: timedelta) -> None:
        run_id = RunId("preview", *sandbox.sandbox_id.split("."))
        deadline_at = time.time() + ttl.total_seconds()
        await self._cluster.shared.extend(run_id, deadline_at=deadline_at)
        for server in self._runtimes:  # each hears of it from the cluster
            async with asyncio.timeout(20):
                while not _ends_at(await server.find(run_id), deadline_at):
                    await asyncio.sleep(0.02)

    async def page(self, sandbox: PreviewSandbox, path: str = "/") -> httpx.Response:
        return await page_of_preview(self.connect(), sandbox, path)


def _ends_at(run: RunState | None, deadline_at: float) -> bool:
    return not isinstance(run, Running) or run.deadline_at == deadline_at


class E2bProviderHost:
    def __init__(self, double: E2bDouble) -> None:
        self._double = double

    def connect(self) -> RemotePreviewProvider:
        return connect_to(self._double)

    def connect_from_another_node(self) -> RemotePreviewProvider:
        return self.connect()

    @contextmanager
    def outage(self) -> Iterator[RemotePreviewProvider]:
        self._double.inject("unavailable")
        try:
            yield self.connect()
        finally:
            self._double.calm()

    async def end_in(self, sandbox: PreviewSandbox, ttl: timedelta) -> None:
        machines, lifetime_sec = self.connect().machines, ttl.total_seconds()
        await machines.set_timeout(sandbox.sandbox_id, lifetime_sec=lifetime_sec)

    async def page(self, sandbox: PreviewSandbox, path: str = "/") -> httpx.Response:
        answer = await page_of(self._double, sandbox, path)
        if answer.status_code == 502:
            raise httpx.ConnectError("E2B's proxy finds nothing there")
        return answer


@asynccontextmanager
async def provider_host(name: str, folder: Path) -> AsyncIterator[ProviderHost]:
    """The host of this name; nothing is left running on it."""
    if name == "local":
        local = LocalProviderHost(folder)
        try:
            yield local
        finally:
            await end_all(local.runtime)
        return
    if name == "kubernetes":
        async with any_cluster(folder) as found:
            yield KubernetesProviderHost(found)
        return
    async with e2b_double() as double:
        yield E2bProviderHost(double)


def connect_to(
    double: E2bDouble,
    api_key: str = API_KEY,
    timeouts: E2bTimeouts = E2bTimeouts(),
    *,
    backoff: Backoff | None = None,
    kind: type[RemotePreviewProvider] = RemotePreviewProvider,
    api_url: str | None = None,
    sandbox_url: str | None = None,
) -> RemotePreviewProvider:
    control = E2bControl(
        api_key,
        domain="e2b.app",
        api_url=api_url or double.url,
        sandbox_url=sandbox_url or double.url,
        pool=double.pool(backoff or Backoff(first_sec=0.01, longest_sec=0.05)),
        translate=translation,
        timeouts=timeouts,
        repeats=REPEATS,
    )
    return kind(
        control,
        template="base",
        port=8080,
        scheme="http",
        files_sec=timeouts.files_sec,
        hosts=".localhost",
    )


async def create(
    provider: PreviewProvider,
    attempt: str = "first",
    files: Mapping[str, bytes] = PAGE,
    *,
    project_id: str = "prj-a",
    ttl: timedelta = HOUR,
) -> PreviewSandbox:
    return await provider.create(project_id=project_id, attempt=attempt, files=files, ttl=ttl)


async def edit(provider: PreviewProvider, sandbox_id: str) -> None:
    await provider.write_files(sandbox_id, written={"new.html": b"new"}, deleted=["index.html"])


async def page_of(double: E2bDouble, sandbox: PreviewSandbox, path: str = "/") -> httpx.Response:
    """As a browser would, which finds every `*.localhost` on this machine."""
    headers = {"Host": urlsplit(sandbox.preview_url).netloc}
    async with httpx.AsyncClient(timeout=60) as client:
        return await client.get(double.url + path, headers=headers)


async def until_gone(provider: PreviewProvider, sandbox_id: str) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await provider.get(sandbox_id)
            except SandboxGoneError:
                return
            await asyncio.sleep(0.05)
