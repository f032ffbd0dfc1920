"""Requests to our agent inside a machine, through E2B's files and commands.

The answers come from programs inside: they are parsed as data, and never trusted.
"""

import asyncio
import errno
import json
import os
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from sandyard.kit.errors import SandyardError, UnavailableError
from sandyard.runtime import errors
from sandyard.runtime.e2b.errors import E2bGoneError, E2bUnavailableError, translation
from sandyard.runtime.model import RunId
from sandyard.runtime.remote import sdk as kit
from sandyard.runtime.remote.backoff import BackingOffError, Backoff
from sandyard.runtime.remote.guest.machine import MARK
from sandyard.runtime.remote.guest_code import STATE, inside_files, inside_folder

if TYPE_CHECKING:
    from e2b import AsyncCommandHandle, AsyncSandbox

HOME = "/home/user"
_CHUNKS_AHEAD = 8
_EXIT_SEC = 2
"""For an agent that has answered to exit."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSALS: Mapping[str, type[SandyardError]] = {
    kind.code: kind
    for kind in (
        errors.CommandRefusedError,
        errors.InvalidArchiveError,
        errors.InvalidSignalError,
        errors.NotATerminalError,
        errors.ProcessNotFoundError,
        errors.TooManyFilesError,
    )
}

Message = Mapping[str, Any]
_Chunks = asyncio.Queue[str | Exception | None]


class Channel:
    def __init__(
        self,
        sandbox: "AsyncSandbox",
        run_id: RunId,
        *,
        timeout_sec: float,
        backoff: Backoff,
        is_running: Callable[[], Awaitable[bool]],
    ) -> None:
        """`is_running` asks E2B about a machine that does not answer."""
        self.sandbox = sandbox
        self.backoff = backoff
        self._environment = {MARK: str(run_id)}
        self._timeout_sec = timeout_sec
        self._is_running = is_running
        self._is_installed = False

    async def ask(self, operation: str, *, more_sec: float = 0, **arguments: Any) -> Any:
        """Its answer. Raises the machine's refusals."""
        await self._install()
        async with self.reaching(more_sec):
            return await self._answer(operation, arguments)

    async def begin(self, operation: str, *, has_input: bool, **arguments: Any) -> Any:
        """Its first message; the operation continues inside."""
        await self._install()
        async with (
            self.reaching(),
            aclosing(self._messages(operation, arguments, stays=True, stdin=has_input)) as messages,
        ):
            async for message in messages:
                return item_of(message)
        raise E2bUnavailableError(reason=f"{operation} returned nothing")

    async def stream(self, operation: str, **arguments: Any) -> AsyncGenerator[Any]:
        """All its messages until it has ended, without a timeout."""
        await self._install()
        async with aclosing(self._messages(operation, arguments)) as messages:
            is_first = True
            while True:
                async with self.reaching(None, sends=is_first):
                    message = await anext(messages, None)
                is_first = False
                if message is None:
                    raise E2bUnavailableError(reason=f"{operation} was interrupted")
                if "result" in message:
                    return
                yield item_of(message)

    async def upload(self, files: Mapping[str, bytes]) -> None:
        """Write the files, by their paths relative to the home folder."""
        from e2b import NotEnoughSpaceException

        async with self.reaching():
            try:
                await kit.upload(self.sandbox, files)
            except NotEnoughSpaceException as error:
                raise errors.StorageFullError from error

    async def send(self, content: AsyncIterator[bytes]) -> str:
        """Upload the content completely; returns its path. Raises the errors of the content."""
        draft = f"{HOME}/{STATE}/incoming/{token_hex(8)}"
        source = _Source(content)
        try:
            await self._write(draft, source)
        except BaseException as error:
            with suppress(SandyardError):
                await self._discard(draft)
            if source.error is not None:
                raise source.error from error
            raise
        return draft

    @asynccontextmanager
    async def reaching(
        self, more_sec: float | None = 0, *, sends: bool = True
    ) -> AsyncIterator[None]:
        """Translate the SDK's errors to ours: NotRunningError only if E2B says that it does not
        run. `more_sec` is added to the time of a request; with None, there is no limit. Requests
        back off after a 429 or 5xx; reading an answer that has begun does not."""
        within_sec = None if more_sec is None else self._timeout_sec + more_sec
        backoff = self.backoff if sends else None
        try:
            async with kit.translated(within_sec, translation, backoff=backoff):
                yield
        except (UnavailableError, E2bGoneError) as error:
            if isinstance(error.__cause__, BackingOffError):
                raise
            if not await self._is_running():
                raise errors.NotRunningError from error
            if isinstance(error, E2bGoneError):
                raise E2bUnavailableError(reason="it was not found, but runs") from error
            raise

    async def _install(self) -> None:
        if not self._is_installed:
            await self.upload(inside_files())
            self._is_installed = True

    async def _answer(self, operation: str, arguments: Message) -> Any:
        async with aclosing(self._messages(operation, arguments)) as messages:
            async for message in messages:
                return result_of(message)
        raise E2bUnavailableError(reason=f"{operation} got no response")

    async def _messages(
        self, operation: str, arguments: Message, *, stays: bool = False, stdin: bool = False
    ) -> AsyncGenerator[Message]:
        """Its messages, line by line. It is killed when nobody reads any more, unless `stays`."""
        chunks: _Chunks = asyncio.Queue(_CHUNKS_AHEAD)
        handle = await self.sandbox.commands.run(
            f"exec python3 -m inside {operation} {shlex.quote(json.dumps(arguments))}",
            background=True,
            envs=self._environment,
            cwd=f"{HOME}/{inside_folder()}",
            on_stdout=chunks.put,
            stdin=stdin,
            timeout=0,
            retain_output=False,
        )
        ended = asyncio.create_task(_until_ended(handle, chunks))
        is_over = stays
        try:
            async for line in _lines(chunks):
                message = parsed(line)
                is_over = is_over or "item" not in message
                yield message
        finally:
            if is_over and not stays:
                await asyncio.wait({ended}, timeout=_EXIT_SEC)
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)
            await handle.disconnect()
            if not is_over:
                with suppress(Exception):
                    await asyncio.wait_for(handle.kill(), self._timeout_sec)

    async def _write(self, draft: str, source: "_Source") -> None:
        from e2b import NotEnoughSpaceException

        async with self.reaching(None):
            try:
                await self.sandbox.files.write(draft, source.pieces())
            except NotEnoughSpaceException as error:
                raise errors.StorageFullError from error

    async def _discard(self, draft: str) -> None:
        from e2b import FileNotFoundException

        async with self.reaching():
            with suppress(FileNotFoundException):
                await self.sandbox.files.remove(draft)


class _Source:
    """Passes content on, and remembers its error: the SDK raises another one."""

    def __init__(self, content: AsyncIterator[bytes]) -> None:
        self._content = content
        self.error: Exception | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._content:
                yield piece
        except Exception as error:
            self.error = error
            raise


async def _until_ended(handle: "AsyncCommandHandle[None]", chunks: "_Chunks") -> None:
    """Signal the end of the stream, or why it broke off."""
    failure: Exception | None = None
    try:
        await handle.wait()
    except Exception as error:
        failure = error
    await chunks.put(failure)


async def _lines(chunks: "_Chunks") -> AsyncIterator[str]:
    rest = ""
    while (chunk := await chunks.get()) is not None:
        if isinstance(chunk, Exception):
            raise chunk
        *lines, rest = (rest + chunk).split("\n")
        for line in lines:
            yield line


@contextmanager
def reading_answer() -> Iterator[None]:
    """A malformed answer is no answer."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise E2bUnavailableError(reason=f"no response: {error!r}") from error


def parsed(line: str) -> Message:
    with reading_answer():
        return dict(json.loads(line))


def result_of(message: Message) -> Any:
    raise_refusal(message)
    with reading_answer():
        return message["result"]


def item_of(message: Message) -> Any:
    raise_refusal(message)
    with reading_answer():
        return message["item"]


def raise_refusal(message: Message) -> None:
    """Raise the machine's refusal as our error, if it refused."""
    text = str(message.get("message", ""))[:300]
    code, number = str(message.get("refused")), message.get("errno")
    if code == errors.UnsafePathError.code:
        raise errors.UnsafePathError(text)
    if (kind := _REFUSALS.get(code)) is not None:
        raise kind(f"{kind.__doc__} ({text})" if text else None)
    if number == errno.ENOENT:
        raise errors.FileMissingError
    if number in _FULL:
        raise errors.StorageFullError
    if isinstance(number, int):
        raise errors.FileRefusedError(f"The sandbox refused this: {os.strerror(number)}.")
