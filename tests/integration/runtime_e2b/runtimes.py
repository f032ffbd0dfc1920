"""Runtimes at the double of E2B, and programs for them."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from sandyard.kit.errors import SandyardError
from sandyard.platform.runtime.e2b.control import E2bControl, E2bTimeouts
from sandyard.platform.runtime.e2b.runtime import E2bRuntime
from sandyard.platform.runtime.e2b.starts import E2bPolicy
from sandyard.platform.runtime.model import Ended, Limits, Owner, Program, Running
from tests.e2b_double import API_KEY
from tests.e2b_machines import E2bMachines
from tests.integration.runtime.programs import LIMITS, new_owner, shell

COUNTING = shell(
    "echo run >>runs; echo this is run $(wc -l <runs); exec python3 -m http.server $PORT"
)
"""Writes a line into its workspace at each start, and shows the workspace."""
IMPATIENT = E2bTimeouts(request_sec=0.5, create_sec=0.5, inside_sec=5, snapshot_sec=5)


def connect_to(
    double: E2bMachines,
    folder: Path,
    timeouts: E2bTimeouts | None = None,
    *,
    node: str = "here",
    api_key: str = API_KEY,
    listen_timeout_sec: float = 20,
) -> E2bRuntime:
    control = E2bControl(api_key, api_url=double.url, sandbox_url=double.url, timeouts=timeouts)
    return E2bRuntime(folder, control, E2bPolicy(node, listen_timeout_sec=listen_timeout_sec))


async def start(
    runtime: E2bRuntime,
    program: Program = COUNTING,
    *,
    owner: Owner | None = None,
    limits: Limits = LIMITS,
) -> Running:
    return await runtime.start(owner or new_owner(), program, limits)


async def page_of(double: E2bMachines, running: Running, path: str = "/runs") -> httpx.Response:
    """As a browser would, which finds every `*.localhost` on this machine."""
    headers = {"Host": urlsplit(running.url).netloc}
    async with httpx.AsyncClient() as client:
        return await client.get(double.url + path, headers=headers)


async def ended(runtime: E2bRuntime, owner: Owner, *, within_sec: float = 15) -> Ended:
    """Its end, once the runtime knows it."""
    async with asyncio.timeout(within_sec):
        while not isinstance(held := await runtime.find(owner), Ended):
            await asyncio.sleep(0.05)
    return held


async def failure_of(runtime: E2bRuntime, program: Program, owner: Owner) -> SandyardError:
    with pytest.raises(SandyardError) as raised:
        await start(runtime, program, owner=owner)
    return raised.value
