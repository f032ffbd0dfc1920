"""The egress proxy of all Pods of a namespace: which Pod a connection is from, its token says."""

import json
import re
from asyncio import StreamReader, StreamWriter
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from secrets import token_hex

from sandyard.kit.clock import Clock
from sandyard.runtime.egress.http_heads import ProxyError
from sandyard.runtime.egress.proxy import EgressProxy, answer, read_head
from sandyard.runtime.kubernetes.api import ApiRefusedError, ApiUnavailableError, Object
from sandyard.runtime.kubernetes.egress_policy import (
    Credentials,
    ProxySettings,
    credentials_in,
    policy_of,
)
from sandyard.runtime.kubernetes.informer import Informer
from sandyard.runtime.network_model import EgressPolicy

REPORT = "/report"
_WAIT_SEC = 1.0
"""For the watch to tell of a Pod, or of its change."""
_MOST_WAITING = 64
"""Connections from one address that have not said yet which Pod they are from."""
_VERSION = re.compile(rb"GET /report\?version=(\d{1,18}) ")
_ASK = 'Proxy-Authenticate: Basic realm="sandyard"\r\n'


class PodsEgressProxy:
    """Reads Pods, and changes nothing. Each token has a proxy with its own connections, names and
    counts, so that no sandbox uses up another's."""

    def __init__(self, pods: Informer, settings: ProxySettings, clock: Clock) -> None:
        self._pods = pods
        self._settings = settings
        self._clock = clock
        self._proxies: dict[tuple[str, str], EgressProxy] = {}
        """By the Pod's name and the token's digest."""
        self._waiting: Counter[str] = Counter()
        """By the address that they come from."""
        self._id = token_hex(8)

    async def __call__(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except OSError:
            return  # the client disconnected
        finally:
            writer.close()

    async def follow(self) -> None:
        """Apply changes to open connections, without end."""
        while True:
            with suppress(ApiUnavailableError, ApiRefusedError):  # then the last state holds
                await self._pods.synced()
            await self._pods.changed()
            self._apply()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        peer = writer.get_extra_info("peername")[0]
        if self._waiting[peer] >= _MOST_WAITING:
            answer(writer, 503, "too many connections at once")
            return
        self._waiting[peer] += 1
        try:
            head = await read_head(reader)
            credentials = credentials_in(head)
            proxy = None if credentials is None else await self._find(credentials)
        except ProxyError as error:
            answer(writer, error.status, str(error))
            return
        finally:
            self._waiting[peer] -= 1
            self._waiting += Counter()  # drops what is zero
        if proxy is None or credentials is None:
            answer(writer, 407, "the sandbox's own token is needed", more=_ASK)
        elif head.startswith(b"GET /report"):
            await self._report(head, credentials, proxy, writer)
        else:
            await proxy(reader, writer, head=head)

    async def _find(self, credentials: Credentials) -> EgressProxy | None:
        def policy_in(pod: Object | None) -> EgressPolicy | None:
            return None if pod is None else policy_of(pod, credentials.digest, self._settings)

        def has_token(pod: Object | None) -> bool:
            return policy_in(pod) is not None

        pod = await self._pods.until(credentials.pod, has_token, timeout_sec=_WAIT_SEC)
        if (policy := policy_in(pod)) is None:
            return None
        key = (credentials.pod, credentials.digest)
        if key not in self._proxies:
            self._proxies[key] = EgressProxy(policy, self._clock)
        return self._proxies[key]

    async def _report(
        self, head: bytes, credentials: Credentials, proxy: EgressProxy, writer: StreamWriter
    ) -> None:
        """What is known once the Pod has the version that the request names: its policy then holds
        for all connections."""
        version = int(found[1]) if (found := _VERSION.match(head)) else 0

        def is_known(pod: Object | None) -> bool:
            return pod is None or int(pod["metadata"]["resourceVersion"]) >= version

        pod = await self._pods.until(credentials.pod, is_known, timeout_sec=_WAIT_SEC)
        if not is_known(pod):
            answer(writer, 503, "the change is not known here yet")
            return
        self._apply()
        report = asdict(proxy.counter.report(proxy.policy.network))
        told = {"proxy": self._id, "report": report, "private_host": proxy.private_host}
        body = json.dumps(told).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n" % len(body))
        writer.write(b"Content-Type: application/json\r\n\r\n" + body)
        await writer.drain()

    def _apply(self) -> None:
        for (name, digest), proxy in list(self._proxies.items()):
            pod = self._pods.objects.get(name)
            policy = None if pod is None else policy_of(pod, digest, self._settings)
            if policy is None:
                proxy.change(EgressPolicy("none"))
                del self._proxies[name, digest]
            elif policy != proxy.policy:
                proxy.change(policy)
