"""Starts isolated commands, and runs short ones to their end."""

import asyncio
import math
import os
import resource
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from sandyard.runtime.local.host import processes
from sandyard.runtime.local.ipc.packets import readable
from sandyard.runtime.local.jail.isolation import WrappedCommand
from sandyard.runtime.local.jail.native_programs import (
    become_words,
    program_file,
    start_program,
)

_STDERR_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    stderr: str
    """The last part of its stderr."""


class Child:
    """A process that was spawned, not forked: copying an interpreter costs more than all that the
    process does until its exec."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._descriptor = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._reap)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None  # noqa: S101 - it has ended
        return self.returncode


Spawned = Child | Process
"""A child of this process; its `returncode` is None until it was waited for."""


async def spawn(
    wrapped: WrappedCommand,
    *,
    stdin: int = DEVNULL,
    stdout: int = DEVNULL,
    stderr: int = DEVNULL,
    inherited: Iterable[int] = (),
    limits: Mapping[int, int] | None = None,
) -> Spawned:
    """Start the process with these limits."""
    descriptors = (*wrapped.descriptors, *inherited)
    program = start_program()
    streams = (stdin, stdout, stderr)
    try:
        if program is not None and wrapped.folder is None and hasattr(os, "pidfd_open"):
            with suppress(PermissionError):
                words = become_words(wrapped.uid, limits or {}, descriptors)
                return Child(_spawn(wrapped, program, words, streams, descriptors))
        return await _fork(wrapped, streams, descriptors, limits)
    finally:
        wrapped.close()


def _spawn(
    wrapped: WrappedCommand,
    program: bytes,
    words: list[str],
    streams: Iterable[int],
    descriptors: Iterable[int],
) -> int:
    """Raises PermissionError where in-memory programs can't be run."""
    actions: list[Any] = []
    for at, stream in enumerate(streams):
        if stream == DEVNULL:
            actions.append((os.POSIX_SPAWN_OPEN, at, os.devnull, os.O_RDWR, 0))
        else:
            actions.append((os.POSIX_SPAWN_DUP2, stream, at))
    actions += [(os.POSIX_SPAWN_DUP2, each, each) for each in descriptors]
    with program_file(program) as path:
        return os.posix_spawn(
            path,
            [*words, *wrapped.command],
            wrapped.environment,
            file_actions=actions,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )


async def _fork(
    wrapped: WrappedCommand,
    streams: tuple[int, int, int],
    descriptors: tuple[int, ...],
    limits: Mapping[int, int] | None,
) -> Process:
    """On cancellation, the started process is killed first: asyncio's own cancellation waits
    forever for pipes that it has not connected yet."""
    uid = wrapped.uid
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *wrapped.command,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            env=wrapped.environment,
            cwd=wrapped.folder,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
            pass_fds=descriptors,
            preexec_fn=None if limits is None else partial(_take_on, limits),
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await kill_tree(await starting)
        raise


def _take_on(limits: Mapping[int, int]) -> None:
    for number, value in limits.items():
        resource.setrlimit(number, (value, value))


async def run(
    wrapped: WrappedCommand, *, timeout_sec: float, stdin: int = DEVNULL, stdout: int = DEVNULL
) -> Outcome:
    """Run to completion; on timeout, nothing is left of it and TimeoutError is raised."""
    reader, writer = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
    os.set_blocking(reader, False)
    try:
        try:
            process = await spawn(wrapped, stdin=stdin, stdout=stdout, stderr=writer)
        finally:
            os.close(writer)
        try:
            async with asyncio.timeout(timeout_sec):
                stderr = await _end_of(reader)
                code = await process.wait()
        finally:
            await kill_tree(process)
    finally:
        os.close(reader)
    return Outcome(code, stderr.decode(errors="replace").strip())


async def _end_of(reader: int) -> bytes:
    content = b""
    while True:
        await readable(reader)
        try:
            piece = os.read(reader, _STDERR_BYTES)
        except BlockingIOError:
            continue
        if not piece:
            return content
        content = (content + piece)[-_STDERR_BYTES:]


async def kill_tree(process: Spawned, *, within_sec: float = 5) -> None:
    """Kill the process and its descendants; return when they are gone.

    The processes of a pid namespace die with its first one, all at once. Its parent is only killed
    if it does not notice.
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
    """Return when one of them is done, or on timeout."""
    await asyncio.wait(waited, timeout=timeout_sec, return_when=asyncio.FIRST_COMPLETED)


def pin(pids: Iterable[int], cpu: float | None) -> None:
    """Restrict these processes and their future children to as many processors as `cpu` says, at
    least one. Fractions can't be given this way, and nobody gets more than requested. None is any
    number.

    Best called while they sleep: a running process is moved at once, which takes time on a busy
    host.
    """
    if cpu is None or not hasattr(os, "sched_setaffinity"):
        return
    usable = sorted(os.sched_getaffinity(0))
    count = max(1, math.floor(cpu))
    first = os.getpid()  # sandboxes start on different ones
    chosen = {usable[(first + n) % len(usable)] for n in range(count)}
    for pid in pids:
        with suppress(ProcessLookupError):
            os.sched_setaffinity(pid, chosen)
