"""What a connection that has logged in reaches: one sandbox."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import asyncssh
from asyncssh.stream import SSHTCPStreamSession

from sandyard.kit.concurrency.streams import StreamLimit, TooManyStreamsError
from sandyard.kit.errors import SandyardError
from sandyard.platform.sessions.commands.service import Commands
from sandyard.platform.sessions.service import Sessions
from sandyard.platform.sessions.ssh.model import SshLogin
from sandyard.runtime.sessions.model import Command
from sandyard.runtime.sessions.ports import PortConnection, Processes, Session

_PIECE_BYTES = 256 * 1024


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """The work is cancelled when the block is left."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


class SandboxAccess:
    """Every method raises the errors of opening a session, and TooManyStreamsError."""

    def __init__(
        self,
        login: SshLogin,
        sessions: Sessions,
        commands: Commands,
        channels: StreamLimit,
        may_write: asyncio.Event,
    ) -> None:
        """`may_write` is set while the client reads."""
        self.login = login
        self.may_write = may_write
        self._sessions = sessions
        self._commands = commands
        self._channels = channels
        self.is_ready = asyncio.Event()
        """Set once the sandbox was woken, if it had to be."""

    def opened(self) -> ExitStack:
        """Counts a channel or an open file until it is closed. Raises ChannelOpenError."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._channels.opened(self.login.account_id))
            except TooManyStreamsError as error:
                raise asyncssh.ChannelOpenError(
                    asyncssh.OPEN_RESOURCE_SHORTAGE, error.message
                ) from error
            return stack.pop_all()

    async def prepared(self, command: Command) -> tuple[Processes, Command]:
        """For a channel with a command: it gets the variables of the sandbox."""
        await self.is_ready.wait()
        return await self._commands.prepare(
            self.login.sandbox_id, command, account_id=self.login.account_id
        )

    async def open_port(self, port: int) -> asyncssh.SSHTCPSession[bytes]:
        """A channel to a port of the sandbox. Raises ChannelOpenError."""
        with self.opened() as stack:
            try:
                connection = await (await self.session()).ports.connect(port)
            except SandyardError as error:
                raise asyncssh.ChannelOpenError(
                    asyncssh.OPEN_CONNECT_FAILED, error.message
                ) from error
            stack.callback(connection.writer.close)
            return _PortSession(connection, stack.pop_all(), self.may_write)

    async def session(self) -> Session:
        await self.is_ready.wait()
        return await self._sessions.open(self.login.sandbox_id, account_id=self.login.account_id)


class _PortSession(SSHTCPStreamSession[bytes]):
    def __init__(self, port: PortConnection, held: ExitStack, may_write: asyncio.Event) -> None:
        """`held` is closed with the channel."""
        super().__init__(self._serve)
        self._port = port
        self._may_write = may_write
        self._held = held

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._held.close()

    async def _serve(
        self, reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]
    ) -> None:
        """Both ways, until both sides have ended."""
        with suppress(OSError, asyncssh.Error):
            await asyncio.gather(
                self._pass(reader, self._port.writer), self._pass(self._port.reader, writer)
            )
        writer.close()

    async def _pass(self, reader: Any, writer: Any) -> None:
        while data := await reader.read(_PIECE_BYTES):
            writer.write(data)
            await writer.drain()
            await self._may_write.wait()
        if writer.can_write_eof():
            writer.write_eof()
