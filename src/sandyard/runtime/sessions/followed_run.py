"""Runs a command from start to end, by the steps that every session has."""

from collections.abc import AsyncGenerator

from sandyard.runtime.sessions.model import Command, Output, Process
from sandyard.runtime.sessions.ports import Processes


async def run_in_steps(processes: Processes, command: Command) -> AsyncGenerator[Process | Output]:
    """`Processes.run` for sessions without a shorter way."""
    process = await processes.start(command)
    yield process
    async for output in processes.output(process.id, follow=True):
        yield output
    yield await processes.wait(process.id)
