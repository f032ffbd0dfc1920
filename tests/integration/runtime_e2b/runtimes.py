"""Runtimes at the double of E2B, and programs for them."""

import asyncio
from pathlib import Path

import httpx
import pytest

from sandyard.kit.clock import SystemClock
from sandyard.kit.errors import SandyardError
from sandyard.runtime.e2b.control import E2bControl, E2bTimeouts
from sandyard.runtime.e2b.errors import translation
from sandyard.runtime.e2b.machines import E2bMachines as Machines
from sandyard.runtime.e2b.machines import E2bOptions
from sandyard.runtime.model import Ended, Limits, Program, RunId, Running
from sandyard.runtime.programs.runner import ProgramRunner
from sandyard.runtime.programs.start import ProgramTimeouts
from sandyard.runtime.records.run_folder import RunFolders
from sandyard.runtime.remote.backoff import Backoff
from sandyard.runtime.store.archives import ArchiveFolder
from tests.support.e2b.double import API_KEY
from tests.support.e2b.machines import E2bMachines
from tests.support.runtime.programs import LIMITS, new_run_id, shell

COUNTING = shell(
    "echo run >>runs; echo this is run $(wc -l <runs); exec python3 -m http.server $PORT"
)
"""Writes a line into its workspace at each start, and shows the workspace."""
IMPATIENT = E2bTimeouts(request_sec=2, create_sec=2, command_sec=5, snapshot_sec=5)


def connect_to(
    double: E2bMachines,
    folder: Path,
    timeouts: E2bTimeouts | None = None,
    *,
    node: str = "here",
    api_key: str = API_KEY,
    listen_timeout_sec: float = 20,
) -> ProgramRunner:
    machines = machines_at(double, folder, timeouts, node=node, api_key=api_key)
    limits = ProgramTimeouts(listen_timeout_sec=listen_timeout_sec)
    archives = ArchiveFolder(folder / "archives")
    return ProgramRunner(machines, RunFolders(folder), archives, limits, SystemClock())


def machines_at(
    double: E2bMachines,
    folder: Path,
    timeouts: E2bTimeouts | None = None,
    *,
    node: str = "here",
    api_key: str = API_KEY,
) -> Machines:
    control = E2bControl(
        api_key,
        domain="e2b.app",
        api_url=double.url,
        sandbox_url=double.url,
        pool=double.pool(Backoff(first_sec=0.01, longest_sec=0.05)),
        translate=translation,
        timeouts=timeouts or E2bTimeouts(),
    )
    return Machines(folder, control, E2bOptions(node), clock=SystemClock())


async def start(
    runtime: ProgramRunner,
    program: Program = COUNTING,
    *,
    run_id: RunId | None = None,
    limits: Limits = LIMITS,
) -> Running:
    return await runtime.start(run_id or new_run_id(), program, limits)


async def page_of(double: E2bMachines, running: Running, path: str = "/runs") -> httpx.Response:
    """As a browser would, which finds every `*.localhost` on this machine."""
    sandbox_id = sandbox_id_of(double, running.run_id)
    headers = {"Host": f"{running.port}-{sandbox_id}.localhost"}
    async with httpx.AsyncClient(timeout=60) as client:
        return await client.get(double.url + path, headers=headers)


def sandbox_id_of(double: E2bMachines, run_id: RunId) -> str:
    """E2B's id for its machine, of which nothing may be left."""
    wanted = {"kind": run_id.kind, "id": run_id.id, "attempt": run_id.attempt}
    found = [box for box in double.boxes if wanted.items() <= box.metadata.items()]
    return found[0].sandbox_id if found else "none"


async def ended(runtime: ProgramRunner, run_id: RunId, *, within_sec: float = 60) -> Ended:
    """Its end, once the runtime knows it."""
    async with asyncio.timeout(within_sec):
        while not isinstance(held := await runtime.refresh(run_id), Ended):
            await asyncio.sleep(0.05)
    return held


async def failure_of(runtime: ProgramRunner, program: Program, run_id: RunId) -> SandyardError:
    with pytest.raises(SandyardError) as raised:
        await start(runtime, program, run_id=run_id)
    return raised.value
