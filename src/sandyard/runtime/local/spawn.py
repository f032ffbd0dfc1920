"""Starts isolated commands, and runs short ones to their end."""

import asyncio
import math
import os
import resource
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from sandyard.runtime.local import processes
from sandyard.runtime.local.isolation import WrappedCommand

_STDERR_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    stderr: str
    """The end of what it wrote to stderr."""


async def spawn(
    wrapped: WrappedCommand,
    *,
    stdin: int = DEVNULL,
    stdout: int = DEVNULL,
    stderr: int = DEVNULL,
    inherited: Iterable[int] = (),
    limits: Mapping[int, int] | None = None,
) -> Process:
    """The process, with these limits. Broken off, it is ended first: asyncio's own way of breaking
    off in the middle waits for ever for pipes that it has not connected yet."""
    uid = wrapped.uid
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *wrapped.command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=wrapped.environment,
            cwd=wrapped.folder,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
            pass_fds=(*wrapped.descriptors, *inherited),
            preexec_fn=None if limits is None else partial(_take_on, limits),
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await kill_tree(await starting)
        raise
    finally:
        wrapped.close()


def _take_on(limits: Mapping[int, int]) -> None:
    for number, value in limits.items():
        resource.setrlimit(number, (value, value))


async def run(
    wrapped: WrappedCommand, *, timeout_sec: float, stdin: int = DEVNULL, stdout: int = DEVNULL
) -> Outcome:
    """Run to the end; TimeoutError, and nothing left of it, when that takes too long."""
    process = await spawn(wrapped, stdin=stdin, stdout=stdout, stderr=PIPE)
    assert process.stderr is not None  # noqa: S101 - it was asked for
    try:
        async with asyncio.timeout(timeout_sec):
            stderr = b""
            while chunk := await process.stderr.read(_STDERR_BYTES):
                stderr = (stderr + chunk)[-_STDERR_BYTES:]
            code = await process.wait()
    finally:
        await kill_tree(process)
    return Outcome(code, stderr.decode(errors="replace").strip())


async def kill_tree(process: Process, *, within_sec: float = 5) -> None:
    """Kill the process and all below it; return when they are gone.

    The processes of a pid namespace die with its first one, all at once. Its parent is only
    killed if it does not notice.
    """
    until = asyncio.get_running_loop().time() + within_sec
    while process.returncode is None:
        below = processes.descendants(process.pid)
        processes.kill(below)
        if not below or asyncio.get_running_loop().time() > until:
            processes.kill([process.pid])
        try:
            async with asyncio.timeout(0.02):
                await process.wait()
        except TimeoutError:
            continue


async def first_of(*waited: asyncio.Future[Any], timeout_sec: float | None = None) -> None:
    """Return when one of them is done, or the time is over."""
    await asyncio.wait(waited, timeout=timeout_sec, return_when=asyncio.FIRST_COMPLETED)


def pin(pids: Iterable[int], cpu: float | None) -> None:
    """Let these, and who comes from them, use only as many processors as `cpu` says, one at least.
    A part of one can't be given this way, and nobody gets more than was asked for. None is any
    number.

    They sleep, at best: who runs is moved at once, and on a busy machine that is waited for."""
    if cpu is None or not hasattr(os, "sched_setaffinity"):
        return
    usable = sorted(os.sched_getaffinity(0))
    count = max(1, math.floor(cpu))
    first = os.getpid()  # sandboxes begin on different ones
    chosen = {usable[(first + n) % len(usable)] for n in range(count)}
    for pid in pids:
        with suppress(ProcessLookupError):
            os.sched_setaffinity(pid, chosen)
