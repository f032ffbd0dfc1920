"""A connection into a machine elsewhere: its envd, and the guest for what envd lacks.

The responses come from programs inside: they are parsed as data, and never trusted.
"""

import asyncio
import base64
import json
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.resources import files
from secrets import token_hex
from typing import Any

from sandyard.kit.errors import SandyardError
from sandyard.kit.lines import LineReader
from sandyard.kit.sizes import MESSAGE_BYTES
from sandyard.runtime import errors, guest
from sandyard.runtime.guest.machine import MARK
from sandyard.runtime.remote.envd import Envd
from sandyard.runtime.remote.errors import CallError, Translate
from sandyard.runtime.remote.http import parsing

STATE = ".sandyard"
"""In the home folder of the machine's user, beside the workspace."""
_NAME = "guest"
HOME = "/home/user"
_EXIT_SEC = 2
"""For a guest that has responded to exit."""
_STORAGE_FULL = 507
Message = Mapping[str, Any]


@cache
def guest_files() -> dict[str, bytes]:
    """By their paths in the machine, relative to the home folder."""
    sources = {
        each.name: each.read_bytes() for each in files(guest).iterdir() if each.name.endswith(".py")
    }
    return {f"{_folder(sources)}/{_NAME}/{name}": sources[name] for name in sorted(sources)}


def guest_folder() -> str:
    """Where `python3 -m guest` finds it; servers of other versions use other folders."""
    return next(iter(guest_files())).rpartition(f"/{_NAME}/")[0]


def _folder(sources: dict[str, bytes]) -> str:
    content = b"".join(sources[name] for name in sorted(sources))
    return f"{STATE}/{sha256(content).hexdigest()[:16]}"


@dataclass(slots=True)
class Connection:
    """`is_running` asks the service about a machine that does not respond."""

    envd: Envd
    run: str
    """Identifies the machine's run; marks its processes."""
    timeout_sec: float
    translate: Translate
    is_running: Callable[[], Awaitable[bool]]
    _is_installed: bool = field(default=False, init=False)

    async def ask(self, operation: str, *, more_sec: float = 0, **arguments: Any) -> Any:
        """The guest's result. Raises the guest's refusals."""
        async with self.reaching(more_sec):
            await self._install()
            async with aclosing(self._messages(operation, arguments)) as messages:
                async for message in messages:
                    return _part(message, "result")
        raise self.no_response(operation)

    async def begin(self, operation: str, *, has_input: bool, **arguments: Any) -> Any:
        """The guest's first message; the operation continues inside."""
        async with self.reaching():
            await self._install()
            messages = self._messages(operation, arguments, stays=True, stdin=has_input)
            async with aclosing(messages):
                async for message in messages:
                    return _part(message, "item")
        raise self.no_response(operation)

    async def stream(self, operation: str, **arguments: Any) -> AsyncGenerator[Any]:
        """All the guest's messages until it has ended, without a timeout."""
        async with self.reaching():
            await self._install()
        async with aclosing(self._messages(operation, arguments)) as messages:
            while True:
                async with self.reaching(None):
                    message = await anext(messages, None)
                if message is None:
                    raise self.no_response(operation)
                with self.parsing():
                    _raise_refusal(message)
                    if "result" in message:
                        return
                    item = message["item"]
                yield item

    async def upload(self, files: Mapping[str, bytes]) -> None:
        """Write the files, by their paths relative to the home folder."""
        async with self.reaching():
            await self.envd.upload(files, within_sec=None)

    async def send(self, content: AsyncIterator[bytes]) -> str:
        """Upload the content completely; returns its path. Raises the errors of the content."""
        draft = f"{HOME}/{STATE}/incoming/{token_hex(8)}"
        try:
            async with self.reaching(None):
                await self.envd.send(draft, content)
        except BaseException:
            with suppress(CallError):
                await self._discard(draft)
            raise
        return draft

    @asynccontextmanager
    async def reaching(self, more_sec: float | None = 0) -> AsyncIterator[None]:
        """Translate failed calls: NotRunningError only if the service says that the machine does
        not run. `more_sec` is added to the time of a call; with None, there is no limit."""
        within_sec = None if more_sec is None else self.timeout_sec + more_sec
        try:
            async with asyncio.timeout(within_sec) as time:
                yield
        except TimeoutError as error:
            if not time.expired():
                raise
            await self._raise(CallError("timeout", "no response in time"), error)
        except CallError as error:
            await self._raise(error, error)

    @contextmanager
    def parsing(self) -> Iterator[None]:
        """A malformed response is no response."""
        try:
            with parsing():
                yield
        except CallError as error:
            raise self.translate(error) from error

    def no_response(self, operation: str) -> SandyardError:
        return self.translate(CallError("unreachable", f"{operation} returned nothing"))

    async def _raise(self, failure: CallError, cause: Exception) -> None:
        if failure.status == _STORAGE_FULL:
            raise errors.StorageFullError from cause
        if failure.was_sent and not await self.is_running():
            raise errors.NotRunningError from cause
        raise self.translate(failure) from cause

    async def _install(self) -> None:
        if not self._is_installed:
            await self.envd.upload(guest_files(), within_sec=None)
            self._is_installed = True

    async def _messages(
        self, operation: str, arguments: Message, *, stays: bool = False, stdin: bool = False
    ) -> AsyncGenerator[Message]:
        """The guest's messages, line by line. It is killed when nobody reads any more, unless
        `stays`."""
        command = f"exec python3 -m guest {operation} {shlex.quote(json.dumps(arguments))}"
        process = {
            "cmd": "/bin/bash",
            "args": ["-l", "-c", command],
            "envs": {MARK: self.run},
            "cwd": f"{HOME}/{guest_folder()}",
        }
        events = self.envd.stream("process.Process/Start", {"process": process, "stdin": stdin})
        pid, lines, is_over = None, LineReader(MESSAGE_BYTES), stays
        try:
            async for event in events:
                with parsing():
                    pid = event["event"].get("start", {}).get("pid", pid)
                    output = event["event"].get("data", {}).get("stdout", "")
                    found = lines.feed(base64.b64decode(output))
                    messages = [dict(json.loads(line)) for line in found]
                for message in messages:
                    is_over = is_over or "item" not in message
                    yield message
        finally:
            await self._finish(events, pid, is_over=is_over, stays=stays)

    async def _finish(
        self, events: AsyncGenerator[Any], pid: int | None, *, is_over: bool, stays: bool
    ) -> None:
        if is_over and not stays:
            with suppress(CallError, TimeoutError):
                async with asyncio.timeout(_EXIT_SEC):
                    async for _ in events:
                        pass
        await events.aclose()
        if pid is not None and not is_over:
            killing = {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"}
            with suppress(CallError):
                await self.envd.call(
                    "process.Process/SendSignal", killing, within_sec=self.timeout_sec
                )

    async def _discard(self, draft: str) -> None:
        await self.envd.call(
            "filesystem.Filesystem/Remove", {"path": draft}, within_sec=self.timeout_sec
        )


def _part(message: Message, name: str) -> Any:
    _raise_refusal(message)
    with parsing():
        return message[name]


def _raise_refusal(message: Message) -> None:
    if (refusal := errors.refusal_of(message)) is not None:
        raise refusal
