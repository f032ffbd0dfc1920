"""A run whose version stays the same need not be asked what has happened to it."""

import asyncio
from signal import SIGKILL

from sandyard.runtime.model import Running
from sandyard.runtime.ports import Runtime
from tests.support.runtime.programs import LIMITS, new_run_id
from tests.support.runtime.runtimes import E2bHost, RuntimeHost, serving


async def settled(runtime: Runtime, running: Running) -> object:
    """Its version, when it has one, and what `refresh` records is known."""
    async with asyncio.timeout(30):
        while True:
            before = (await runtime.versions("sandbox")).get(running.run_id)
            assert isinstance(await runtime.refresh(running.run_id), Running)
            if before is not None and not await is_changed(runtime, running, before):
                return before
            await asyncio.sleep(0.05)


async def is_changed(runtime: Runtime, running: Running, version: object) -> bool:
    return (await runtime.versions("sandbox")).get(running.run_id) != version


async def test_what_happens_to_a_run_changes_its_version(
    host: RuntimeHost, runtime: Runtime
) -> None:
    running = await runtime.start(new_run_id(), serving("echo run"), LIMITS)
    if isinstance(host, E2bHost):
        assert await runtime.versions("sandbox") == {}, "each is to be asked"
        return
    version = await settled(runtime, running)
    for _ in range(3):
        await runtime.refresh(running.run_id)
        assert not await is_changed(runtime, running, version), "to look changes nothing"
    session = await runtime.session(running.run_id)
    [process] = [each for each in await session.processes.list() if each.is_program]
    await session.processes.signal(process.id, SIGKILL)
    async with asyncio.timeout(30):
        while not await is_changed(runtime, running, version):
            await asyncio.sleep(0.05)  # nobody asks the runtime meanwhile
    again = await settled(runtime, running)
    await runtime.stop(running.run_id)
    assert await is_changed(runtime, running, again)
    assert running.run_id not in await runtime.versions("sandbox")


async def test_one_that_is_killed_has_another_version(host: RuntimeHost, runtime: Runtime) -> None:
    running = await runtime.start(new_run_id(), serving(""), LIMITS)
    if isinstance(host, E2bHost):
        return
    version = await settled(runtime, running)
    await host.kill(running)
    async with asyncio.timeout(30):
        while not await is_changed(runtime, running, version):
            await asyncio.sleep(0.05)
