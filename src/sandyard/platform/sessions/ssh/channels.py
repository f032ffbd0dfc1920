"""A channel of an SSH connection: a shell, a command, SFTP or scp."""

import asyncio
import logging
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

import asyncssh
from asyncssh.sftp import MIN_SFTP_VERSION

from sandyard.kit.errors import SandyardError
from sandyard.platform.sessions.ssh.access import SandboxAccess
from sandyard.platform.sessions.ssh.commands import FAILED, SshProcess, run_command
from sandyard.platform.sessions.ssh.files import SandboxSftp

logger = logging.getLogger(__name__)

_SFTP = "sftp"
_MOST_UNREAD_BYTES = 4 << 20
"""Answers to requests of SFTP wait for their client; only those that refuse come to so much."""
_MOST_WAITING = 1000
_MOST_VARIABLES, _VARIABLE_BYTES = 100, 1000


class Channel(SshProcess):
    """Nothing that a client sends or does not read is stored without end, as asyncssh would."""

    def __init__(self, held: ExitStack) -> None:
        """`held` is closed with the channel."""
        super().__init__(_run, self._files, MIN_SFTP_VERSION, allow_scp=True)
        self._held = held

    def connection_made(self, chan: Any) -> None:
        super().connection_made(chan)
        chan._env = _Variables()  # noqa: SLF001 - it has no limit

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._held.close()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if self.channel.get_write_buffer_size() > _MOST_UNREAD_BYTES:
            self.channel.abort()
        else:
            super().data_received(data, datatype)

    def exception_received(self, exc: Exception) -> None:
        """Signals and sizes of the terminal, which wait behind the input that came before them."""
        if len(self._recv_buf[None]) < _MOST_WAITING:
            super().exception_received(exc)

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == _SFTP

    def _files(self, channel: Any) -> SandboxSftp:
        files = SandboxSftp(
            channel, is_gone=partial(self.at_eof, None), drain=partial(self.drain, None)
        )
        self._held.callback(files.release)
        return files


class _Variables(dict[bytes, bytes]):
    """The first ones that a client sets."""

    def __setitem__(self, name: bytes, value: bytes) -> None:
        if len(self) < _MOST_VARIABLES and len(name) + len(value) <= _VARIABLE_BYTES:
            super().__setitem__(name, value)


def paced_by_client(connection: asyncssh.SSHServerConnection) -> asyncio.Event:
    """It is set while the client reads what it is sent. Until then, nothing more of what it sends
    is read: asyncssh would store all answers."""
    # It was just connected. uvloop's transports are of no class of asyncio.
    may_write, transport = asyncio.Event(), cast("asyncio.Transport", connection._transport)  # noqa: SLF001
    may_write.set()

    def pause() -> None:
        may_write.clear()
        transport.pause_reading()

    def resume() -> None:
        may_write.set()
        transport.resume_reading()

    connection.pause_writing, connection.resume_writing = pause, resume  # type: ignore[method-assign]
    return may_write


async def _run(process: SshProcess) -> None:
    access: SandboxAccess = process.get_extra_info("access")
    try:
        await run_command(access, process)
    except SandyardError as error:
        process.stderr.write(f"{error.message}\r\n".encode())
        process.exit(FAILED)
    except Exception:
        logger.exception("ssh channel")
        process.exit(FAILED)
