"""What a kubelet asks the containers of its Pods: whether they are ready."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

from tests.support.kubernetes.api_server import now

_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_TLS.check_hostname, _TLS.verify_mode = False, ssl.CERT_NONE


async def keep_probing(
    address: str,
    container: Mapping[str, Any],
    status: Mapping[str, Any],
    tell: Callable[..., Mapping[str, Any]],
) -> None:
    """`tell` returns the status of the Pod as the cluster has it, also what it says itself of a
    node that is cut off."""
    probe = container["readinessProbe"]
    while True:
        is_ready = await _is_ready(address, probe)
        condition = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": now()}
        known = {each["type"]: each["status"] for each in tell().get("conditions", ())}
        if known.get("Ready") != str(is_ready):
            tell(containerStatuses=[{**status, "ready": is_ready}], conditions=[condition])
        await asyncio.sleep(probe["periodSeconds"])


async def _is_ready(address: str, probe: Mapping[str, Any]) -> bool:
    """By a connection of its own, as a kubelet does, which checks no certificate."""
    get, timeout = probe["httpGet"], aiohttp.ClientTimeout(total=probe.get("timeoutSeconds", 1))
    url = f"{get['scheme'].lower()}://{address}:{get['port']}{get['path']}"
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, ssl=_TLS) as response,
        ):
            return response.status < 400
    except (TimeoutError, aiohttp.ClientError, OSError):
        return False
