"""The egress proxy of a cluster: a process of its own, through which alone its Pods go out."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.runtime.kubernetes.egress import EgressUnavailableError, ProxyAddress
from sandyard.runtime.kubernetes.egress_policy import ProxySettings, credentials_of
from sandyard.runtime.kubernetes.egress_proxy import PodsEgressProxy
from sandyard.runtime.kubernetes.informer import Informer
from sandyard.runtime.kubernetes.machines import KubernetesMachines
from sandyard.runtime.model import MachineSpec
from sandyard.runtime.network_model import EgressRules
from tests.support.kubernetes.admission import NAMESPACE, ROOT_NAMESPACE
from tests.support.kubernetes.api_server import EGRESS_TOKEN
from tests.support.kubernetes.cluster import Cluster, cluster
from tests.support.runtime.programs import LIMITS, new_run_id
from tests.support.runtime.sessions import shell

ALLOWED, PRIVATE = "127.0.0.2", "127.0.0.3"
GET = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://{}:{}/\").read().decode())'"
SERVICE = "127.0.0.1:3128"


@asynccontextmanager
async def page() -> AsyncIterator[int]:
    """A host of the internet, at an address that is allowed."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage")
        writer.close()

    async with await asyncio.start_server(answer, ALLOWED, 0) as server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def proxy_process(found: Cluster, folder: Path) -> AsyncIterator[int]:
    (folder / "egress-token").write_text(EGRESS_TOKEN)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandyard", "egress-proxy", "--host", "127.0.0.1", "--port", "0"),
        env={
            "KUBERNETES_URL": found.api.url,
            "KUBERNETES_NAMESPACE": NAMESPACE,
            "KUBERNETES_ROOT_NAMESPACE": ROOT_NAMESPACE,
            "KUBERNETES_TOKEN_FILE": str(folder / "egress-token"),
            "SANDBOX_EGRESS_NETWORKS": f"{ALLOWED}/32",
        },
        stdin=DEVNULL,
        stdout=PIPE,
    )
    assert process.stdout is not None
    ready, port = (await process.stdout.readline()).split()
    assert ready == b"ready"
    try:
        yield int(port)
    finally:
        process.terminate()
        assert await process.wait() == 0


@asynccontextmanager
async def proxy_here(found: Cluster) -> AsyncIterator[int]:
    pods = Informer(found.client(), "pods")
    proxy = PodsEgressProxy(pods, ProxySettings(networks=(f"{ALLOWED}/32",)), SystemClock())
    following = asyncio.create_task(proxy.follow())
    try:
        async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
            yield server.sockets[0].getsockname()[1]
    finally:
        following.cancel()
        await pods.close()


def machines_of(found: Cluster, port: int) -> KubernetesMachines:
    found.nodes.services["egress-proxy"] = ("127.0.0.1", port)
    return found.machines(proxy=ProxyAddress(SERVICE, f"127.0.0.1:{port}"))[0]


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as found:
        yield found


async def test_a_pod_goes_out_by_the_proxy_alone_and_its_owner_sees_what_was_refused(
    found: Cluster, tmp_path: Path
) -> None:
    async with page() as port, proxy_process(found, tmp_path) as proxy:
        machines = machines_of(found, proxy)
        run_id = new_run_id()
        await machines.create(run_id, MachineSpec(LIMITS, 600, network="internet"))
        session = await machines.session(run_id)
        assert await shell(session, GET.format(ALLOWED, port)) == b"page\n"
        refused = await shell(session, GET.format(PRIVATE, port) + " 2>&1; true")
        assert b"blocked: 127.0.0.3 (its address is private)" in refused
        direct = GET.replace("import ", "import os; os.environ.clear(); import ")
        assert b"refused" in await shell(session, direct.format(ALLOWED, port) + " 2>&1; true")
        report = await machines.egress_report(run_id)
        assert (report.network, report.connections, report.refused) == ("internet", 1, 1)
        assert [each.host for each in report.refusals] == [PRIVATE]
        await machines.set_network(run_id, "none")
        assert b"no network" in await shell(session, GET.format(ALLOWED, port) + " 2>&1; true")
        await machines.stop(run_id)
        await machines.refresh(run_id)
        report = await found.machines()[0].egress_report(run_id)
        assert (report.network, report.connections, report.refused) == ("none", 1, 2)


async def test_a_clone_has_a_token_of_its_own_for_as_long_as_it_runs(found: Cluster) -> None:
    async with page() as port, proxy_here(found) as proxy:
        machines = machines_of(found, proxy)
        run_id = new_run_id()
        await machines.create(run_id, MachineSpec(LIMITS, 600))
        session = await machines.session(run_id)
        async with machines.egress(run_id) as egress:
            url = egress.environment["https_proxy"]
            get = f"http_proxy={url} " + GET
            assert await shell(session, get.format(ALLOWED, port)) == b"page\n"
            assert await egress.refused() is None
            await shell(session, get.format(PRIVATE, port) + "; true")
            assert await egress.refused() == PRIVATE
            assert b"no network" in await shell(session, GET.format(ALLOWED, port) + " 2>&1; true")
        assert b"407" in await shell(session, get.format(ALLOWED, port) + " 2>&1; true")


async def test_new_rules_close_what_they_do_not_allow(found: Cluster) -> None:
    async with page() as port, proxy_here(found) as proxy:
        machines = machines_of(found, proxy)
        run_id = new_run_id()
        await machines.create(run_id, MachineSpec(LIMITS, 600, network="internet"))
        url = machines.records.of(run_id).text("proxy") or ""
        reader, writer = await connected_by(url, proxy, ALLOWED, port)
        await machines.set_network(run_id, "internet", EgressRules(deny=("0.0.0.0/0",)))
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        other = url.replace("http://", "http://x")
        with pytest.raises(ConnectionRefusedError, match="407"):
            await connected_by(other, proxy, ALLOWED, port)


async def test_without_the_proxy_a_change_is_recorded_and_holds_when_it_is_back(
    found: Cluster,
) -> None:
    async with page() as port:
        async with proxy_here(found) as proxy:
            machines = machines_of(found, proxy)
            run_id = new_run_id()
            await machines.create(run_id, MachineSpec(LIMITS, 600, network="internet"))
            url = machines.records.of(run_id).text("proxy") or ""
            _, writer = await connected_by(url, proxy, ALLOWED, port)
            writer.close()
            await writer.wait_closed()
        with pytest.raises(EgressUnavailableError):
            await machines.set_network(run_id, "none")
        async with proxy_here(found) as proxy:
            with pytest.raises(ConnectionRefusedError, match="no network"):
                await connected_by(url, proxy, ALLOWED, port)


async def connected_by(
    url: str, proxy: int, host: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A tunnel that the program with this proxy URL has."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy)
    head = f"CONNECT {host}:{port} HTTP/1.1\r\n"
    writer.write(f"{head}Proxy-Authorization: {credentials_of(url).header()}\r\n\r\n".encode())
    status = (await reader.readuntil(b"\r\n\r\n")).splitlines()[0]
    if not status.startswith(b"HTTP/1.1 200"):
        writer.close()
        await writer.wait_closed()
        raise ConnectionRefusedError(status.decode())
    return reader, writer
