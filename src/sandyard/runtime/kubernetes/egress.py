"""How a Pod's egress is set and asked about: by its annotations, and of the egress proxies."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, replace
from secrets import token_urlsafe
from typing import Any

from sandyard.runtime.errors import NotRunningError, RuntimeUnavailableError
from sandyard.runtime.kubernetes import egress_policy
from sandyard.runtime.kubernetes.api import Object
from sandyard.runtime.kubernetes.egress_policy import Credentials, annotation, credentials_of
from sandyard.runtime.kubernetes.informer import Informer
from sandyard.runtime.kubernetes.records import KubernetesRunRecord
from sandyard.runtime.machine_ports import Egress
from sandyard.runtime.network_model import EgressReport, EgressRules, Network, read_report
from sandyard.runtime.remote.backoff import Backoff
from sandyard.runtime.remote.errors import CallError
from sandyard.runtime.remote.http import HttpCaller, HttpPool, parsing

_ASK_SEC = 5.0


class EgressUnavailableError(RuntimeUnavailableError):
    """The egress proxy of the cluster can't be reached. A change of the network is recorded; try
    again shortly."""

    code = "EGRESS_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """`host:port` of the Service that Pods connect to, and of the one that has the address of each
    proxy."""

    service: str
    replicas: str


@dataclass(slots=True, eq=False)
class PodsEgress:
    """Without an egress proxy, Pods reach nothing."""

    pods: Informer
    pool: HttpPool
    _: KW_ONLY
    proxy: ProxyAddress | None

    async def url(self, name: str) -> str | None:
        """For the programs of a new Pod: by an address, since they resolve no names."""
        if self.proxy is None:
            return None
        [address, *_] = await _addresses(self.proxy.service)
        return Credentials(name, token_urlsafe(32)).url(address)

    @asynccontextmanager
    async def opened(self, record: KubernetesRunRecord) -> AsyncIterator[Egress]:
        """For one command, with a token of its own."""
        if (url := await self.url(record.pod)) is None:
            yield Egress({}, _no_refusal)
            return
        credentials = credentials_of(url)
        allowed = annotation(credentials, "internet")
        await self._annotate(record.pod, {egress_policy.OF_CLONE: json.dumps(allowed)})

        async def refused() -> str | None:
            found = await self._ask(credentials)
            return next((each.private_host for each in found.values() if each.private_host), None)

        try:
            yield Egress({"https_proxy": url, "no_proxy": "", "NO_PROXY": ""}, refused)
        finally:
            with suppress(NotRunningError):
                await self._annotate(record.pod, {egress_policy.OF_CLONE: None})

    async def set_network(
        self, record: KubernetesRunRecord, network: Network, rules: EgressRules
    ) -> None:
        """Return once nothing goes out that this network does not allow."""
        machine, url = record.machine(), record.text("proxy")
        if machine is None:
            raise NotRunningError
        if url is not None:
            credentials = credentials_of(url)
            allowed = json.dumps(annotation(credentials, network, rules))
            pod = await self._annotate(record.pod, {egress_policy.OWN: allowed})
            await self._ask(credentials, version=pod["metadata"]["resourceVersion"])
        await record.put_machine(replace(machine, network=network))

    async def report(self, record: KubernetesRunRecord) -> EgressReport:
        """Of all proxies, those that are gone included."""
        machine, url = record.machine(), record.text("proxy")
        if machine is None:
            return EgressReport("none")
        reports = record.egress(machine.network)
        if url is not None and record.ended() is None and record.pod in self.pods.objects:
            found = await self._ask(credentials_of(url))
            reports |= {
                proxy: replace(each.report, network=machine.network)
                for proxy, each in found.items()
            }
            await record.put_egress(reports)
        return egress_policy.summed(machine.network, list(reports.values()))

    async def _annotate(self, name: str, annotations: Mapping[str, str | None]) -> Object:
        patch: dict[str, Any] = {"metadata": {"annotations": dict(annotations)}}
        pod = self.pods.objects.get(name)
        if pod is None or (found := await self.pods.api_of(pod).patch("pods", name, patch)) is None:
            raise NotRunningError
        self.pods.note(found)
        return found

    async def _ask(self, credentials: Credentials, *, version: str = "0") -> "dict[str, _Told]":
        """What each proxy tells, once it knows this version of the Pod. Raises
        EgressUnavailableError."""
        if self.proxy is None:
            return {}
        addresses = await _addresses(self.proxy.replicas)
        asking = (self._ask_one(each, credentials, version) for each in addresses)
        return {told.proxy: told for told in await asyncio.gather(*asking)}

    async def _ask_one(self, address: str, credentials: Credentials, version: str) -> "_Told":
        headers = {"Proxy-Authorization": credentials.header()}
        caller = HttpCaller(self.pool, f"http://{address}", headers, Backoff())
        try:
            path = f"/report?version={version}"
            reply = await caller.call("GET", path, within_sec=_ASK_SEC)
            with parsing():
                found = reply.json()
                report = read_report(found["report"], "none")
                return _Told(str(found["proxy"]), report, found["private_host"])
        except CallError as error:
            raise EgressUnavailableError(reason=error.reason) from error


@dataclass(frozen=True, slots=True)
class _Told:
    proxy: str
    report: EgressReport
    private_host: str | None


async def _addresses(service: str) -> list[str]:
    host, _, port = service.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise EgressUnavailableError(reason=f"{host}: {error}") from error
    hosts = dict.fromkeys(str(each[4][0]) for each in found)
    return [f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in hosts]


async def _no_refusal() -> str | None:
    return None
