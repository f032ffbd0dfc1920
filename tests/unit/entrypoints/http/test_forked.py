"""Long work runs in a copy of the process: the event loop goes on, and nothing is left behind."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from sandyard.entrypoints.http.forked import run_forked
from sandyard.kit.errors import UnavailableError


def spin() -> bytes:
    """Holds the interpreter's lock of its process."""
    end = time.process_time() + 0.5
    while time.process_time() < end:
        sum(range(1000))
    return str(os.getpid()).encode() + b" " * 1_000_000


def sleep() -> bytes:
    time.sleep(60)
    return b""


async def test_the_event_loop_goes_on_during_the_work() -> None:
    used_sec, longest_sec = time.thread_time(), 0.0
    work = asyncio.create_task(run_forked(spin))
    while not work.done():
        before = time.process_time()
        await asyncio.sleep(0.001)
        longest_sec = max(longest_sec, time.process_time() - before)
    assert int(await work) != os.getpid()
    assert longest_sec < 0.1
    assert time.thread_time() - used_sec < 0.4


async def test_work_that_fails_or_takes_too_long_is_refused_and_leaves_no_process() -> None:
    children = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children")
    before = {*children.read_text().split()}
    with pytest.raises(UnavailableError):
        await run_forked(lambda: bytes(1 // 0))
    began = time.monotonic()
    with pytest.raises(UnavailableError):
        await run_forked(sleep, within_sec=0.2)
    assert time.monotonic() - began < 30
    async with asyncio.timeout(10):
        while not before >= {*children.read_text().split()}:  # a thread reaps it
            await asyncio.sleep(0.01)


async def test_the_copy_has_no_connection_of_this_process() -> None:
    reading, writing = os.pipe()
    try:
        assert await run_forked(lambda: str(_is_open(writing)).encode()) == b"False"
    finally:
        os.close(reading)
        os.close(writing)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
