"""A connection into a machine elsewhere: its envd, and the guest for what envd lacks.

The responses come from programs inside: they are parsed as data, and never trusted.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from sandyard.runtime import errors
from sandyard.runtime.remote.envd import Envd
from sandyard.runtime.remote.errors import CallError, Translate
from sandyard.runtime.remote.guest import HOME, STATE, Guest, Message
from sandyard.runtime.remote.http import parsing

_STORAGE_FULL = 507


@dataclass(slots=True)
class Connection:
    """`is_running` asks the service about a machine that does not respond."""

    envd: Envd
    guest: Guest
    timeout_sec: float
    translate: Translate
    is_running: Callable[[], Awaitable[bool]]
    home: str = HOME
    """Of the user that envd is, with its records and the workspace."""

    async def ask(self, operation: str, *, more_sec: float = 0, **arguments: Any) -> Any:
        """The guest's result. Raises the guest's refusals."""
        async with self.reaching(more_sec):
            await self.guest.install()
            async with aclosing(self.guest.messages(operation, arguments)) as messages:
                async for message in messages:
                    return _part(message, "result")
            raise no_response(operation)

    async def begin(self, operation: str, *, has_input: bool, **arguments: Any) -> Any:
        """The guest's first message; the operation continues inside."""
        async with self.reaching():
            await self.guest.install()
            messages = self.guest.messages(operation, arguments, stays=True, stdin=has_input)
            async with aclosing(messages):
                async for message in messages:
                    return _part(message, "item")
            raise no_response(operation)

    async def stream(self, operation: str, **arguments: Any) -> AsyncGenerator[Any]:
        """All the guest's messages until it has ended, without a timeout."""
        async with self.reaching():
            await self.guest.install()
        async with aclosing(self.guest.messages(operation, arguments)) as messages:
            while True:
                async with self.reaching(None):
                    if (message := await anext(messages, None)) is None:
                        raise no_response(operation)
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
        draft = f"{self.home}/{STATE}/incoming/{token_hex(8)}"
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

    async def _raise(self, failure: CallError, cause: Exception) -> None:
        if failure.status == _STORAGE_FULL:
            raise errors.StorageFullError from cause
        if failure.was_sent and not await self.is_running():
            raise errors.NotRunningError from cause
        raise self.translate(failure) from cause

    async def _discard(self, draft: str) -> None:
        await self.envd.call(
            "filesystem.Filesystem/Remove", {"path": draft}, within_sec=self.timeout_sec
        )


def no_response(operation: str) -> CallError:
    """Its stream has ended early: the machine may have ended."""
    return CallError("unreachable", f"{operation} returned nothing")


def _part(message: Message, name: str) -> Any:
    _raise_refusal(message)
    with parsing():
        return message[name]


def _raise_refusal(message: Message) -> None:
    if (refusal := errors.refusal_of(message)) is not None:
        raise refusal
