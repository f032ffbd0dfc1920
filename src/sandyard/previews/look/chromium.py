"""A headless Chromium per page, driven over its DevTools protocol; it has its own sandbox, and its
own user if this server is root."""

import asyncio
import base64
import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from sandyard.previews.errors import BrowserFailedError, BrowserMissingError
from sandyard.previews.look.model import Look, PageEvents, Viewport
from sandyard.runtime.local.host import processes
from sandyard.runtime.local.limits.storage_use import used_bytes

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_NOBODY = 65534
_START = (
    "import os,sys\n_,r,w,uid,*program=sys.argv\nos.dup2(int(r),3);os.dup2(int(w),4)\n"
    "if uid:os.setgroups([]);os.setgid(int(uid));os.setuid(int(uid))\n"
    "os.execvp(program[0],program)"
)
"""The descriptors of the protocol are 3 and 4."""
_ARGUMENTS = (
    *("--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-extensions", "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio"),
    *("--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--renderer-process-limit=2"),
)
_MOST_BYTES = 2 << 30
"""Resident memory of all its processes; shared pages count for each."""
_MOST_STORED_BYTES = 256 << 20
"""Of what its pages store, in its folder."""
_MESSAGE_BYTES = 64 << 20
_LOAD_SEC, _QUIET_SEC, _POLL_SEC = 15.0, 0.5, 0.05
_WITHIN_SEC = 25.0

OnEvent = Callable[[str, dict[str, Any]], None]


class DevTools:
    """Raises BrowserFailedError once the browser has ended."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.WriteTransport, on_event: OnEvent
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_event = on_event
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._reading = asyncio.create_task(self._read())

    async def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._calls[self._number] = answer
        if self._reading.done():
            raise BrowserFailedError
        about = {} if session is None else {"sessionId": session}
        self._writer.write(orjson.dumps(message | about) + b"\0")
        return await answer

    async def _read(self) -> None:
        with suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            while True:
                message = orjson.loads((await self._reader.readuntil(b"\0"))[:-1])
                if "id" not in message:
                    self._on_event(message["method"], message["params"])
                    continue
                self._answer(message["id"], message.get("error"), message.get("result"))
        for number in list(self._calls):
            self._answer(number, {"message": "it has ended"}, None)

    def _answer(self, number: int, error: dict[str, Any] | None, result: Any) -> None:
        answer = self._calls.pop(number)
        if answer.done():  # nobody waits any more
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(BrowserFailedError(reason=str(error.get("message"))))


@dataclass(frozen=True, slots=True)
class Chromium:
    program: str | None
    """None is the first of the usual names that is installed."""

    def require(self) -> str:
        """Raises BrowserMissingError."""
        names = _NAMES if self.program is None else (self.program,)
        found = next(filter(None, map(shutil.which, names)), None)
        if found is None:
            raise BrowserMissingError
        return found

    async def look(self, url: str, *, hosts: str, viewport: Viewport) -> Look:
        """Load the page, which reaches what `hosts` maps and nothing else. Raises
        BrowserMissingError, BrowserFailedError."""
        events = PageEvents()
        arguments = (*_ARGUMENTS, f"--host-resolver-rules={hosts}", "about:blank")
        async with _started(self.require(), arguments, events.note) as tools:
            return await _visit(tools, events, url, viewport)


async def _visit(tools: DevTools, events: PageEvents, url: str, viewport: Viewport) -> Look:
    title, screenshot = "", None
    with suppress(TimeoutError):
        async with asyncio.timeout(_WITHIN_SEC):
            made = await tools.call("Target.createTarget", url="about:blank")
            target = {"targetId": made["targetId"], "flatten": True}
            session = (await tools.call("Target.attachToTarget", **target))["sessionId"]
            size = {"width": viewport.width, "height": viewport.height}
            scale = {"deviceScaleFactor": 1, "mobile": False}
            await tools.call("Emulation.setDeviceMetricsOverride", session, **size, **scale)
            for domain in ("Page", "Runtime", "Network", "Log"):
                await tools.call(f"{domain}.enable", session)
            await tools.call("Page.navigate", session, url=url)
            await _until_quiet(events)
            shown = await tools.call("Runtime.evaluate", session, expression="document.title")
            title = str(shown["result"].get("value", ""))[:500]
            taken = await tools.call("Page.captureScreenshot", session, format="png")
            screenshot = base64.b64decode(taken["data"])
    console, failures = tuple(events.console), tuple(events.failures)
    return Look(url, title, screenshot, console, failures, screenshot is not None)


async def _until_quiet(events: PageEvents) -> None:
    """Until it is loaded and nothing was in flight for a moment, or for as long as it may take."""
    until, quiet_since = time.monotonic() + _LOAD_SEC, time.monotonic()
    while time.monotonic() < until:
        if not events.is_quiet:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since >= _QUIET_SEC:
            return
        await asyncio.sleep(_POLL_SEC)


@asynccontextmanager
async def _started(
    program: str, arguments: tuple[str, ...], on_event: OnEvent
) -> AsyncIterator[DevTools]:
    """The browser, which has ended with all its processes when the context ends."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandyard-look-")))
        uid = _NOBODY if os.geteuid() == 0 else None
        if uid is not None:
            os.chown(folder, uid, uid)
        (their_in, to_them), (from_them, their_out) = _pipe(), _pipe()
        starting = (sys.executable, "-ISc", _START, f"{their_in}", f"{their_out}", f"{uid or ''}")
        process = await asyncio.create_subprocess_exec(
            *(*starting, program, f"--user-data-dir={folder / 'profile'}", *arguments),
            pass_fds=(their_in, their_out),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=folder,
            env={"HOME": f"{folder}", "TMPDIR": f"{folder}", "PATH": os.environ["PATH"]},
            start_new_session=True,
        )
        stack.push_async_callback(_end, process)
        for descriptor in (their_in, their_out):
            os.close(descriptor)
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(_MESSAGE_BYTES)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_them, "rb")
        )
        writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(to_them, "wb"))
        stack.callback(reading.close)
        stack.callback(_abort, writer)
        watching = asyncio.create_task(_watch(process.pid, folder))
        stack.callback(watching.cancel)
        yield DevTools(reader, writer, on_event)


def _abort(writer: asyncio.WriteTransport) -> None:
    if not writer.is_closing():  # the browser was ended
        writer.abort()


def _pipe() -> tuple[int, int]:
    """Above the descriptors that the browser expects."""
    ends = os.pipe()
    numbers = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return numbers[0], numbers[1]


async def _watch(pid: int, folder: Path) -> None:
    """End it if it needs too much memory, or stores too much."""
    while True:
        await asyncio.sleep(0.5)
        found = [pid, *await asyncio.to_thread(processes.descendants, pid)]
        memory = await asyncio.to_thread(processes.resident_bytes, found)
        stored = await asyncio.to_thread(used_bytes, folder, give_up_above=_MOST_STORED_BYTES)
        if memory > _MOST_BYTES or stored > _MOST_STORED_BYTES:
            processes.kill(found)


async def _end(process: asyncio.subprocess.Process) -> None:
    await asyncio.to_thread(processes.kill_descendants, process.pid)
    processes.kill([process.pid])
    await process.wait()
