"""Requests to a machine's supervisor, and the errors for its refusals."""

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

from sandyard.runtime.errors import RuntimeUnavailableError, refusal_of
from sandyard.runtime.local.ipc.packets import SOCKET, Packet, connect, receive, send

Request = Callable[..., Awaitable[Packet]]
OnFailure = Callable[[OSError], Awaitable[NoReturn]]
"""Raises the error for a supervisor that can't be reached: an end, or an outage."""


class MachineClient(Protocol):
    """Sends the requests of a session."""

    def of_root(self) -> "MachineClient": ...

    async def ask(
        self,
        operation: str,
        arguments: dict[str, Any],
        *,
        data: bytes = b"",
        descriptors: tuple[int, ...] = (),
    ) -> Packet:
        """The answer. Raises the machine's refusals."""

    def open(self) -> AbstractAsyncContextManager[Request]:
        """For related requests: a draft that is not committed until its end is discarded."""


class SupervisorClient:
    """Sends requests to the supervisor of one machine; one connection for each."""

    def __init__(self, folder: Path, on_failure: OnFailure, *, as_root: bool) -> None:
        self._folder = folder
        self._on_failure = on_failure
        self._as_root = as_root

    def of_root(self) -> "SupervisorClient":
        return SupervisorClient(self._folder, self._on_failure, as_root=True)

    async def ask(
        self,
        operation: str,
        arguments: dict[str, Any],
        *,
        data: bytes = b"",
        descriptors: tuple[int, ...] = (),
    ) -> Packet:
        with await self._connect() as channel:
            return await self._request(channel, operation, arguments, data, descriptors)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Request]:
        with await self._connect() as channel:
            yield partial(self._request, channel)

    async def _request(
        self,
        channel: socket.socket,
        operation: str,
        arguments: dict[str, Any],
        data: bytes = b"",
        descriptors: tuple[int, ...] = (),
    ) -> Packet:
        try:
            message = {"op": operation, "arguments": arguments, "as_root": self._as_root}
            await send(channel, message, data, descriptors)
            packet = await receive(channel)
        except OSError as error:
            await self._on_failure(error)
        if packet is None:
            await self._on_failure(ConnectionResetError("the supervisor has gone"))
        raise_refusal(packet)
        return packet

    async def _connect(self) -> socket.socket:
        """Through the folder's descriptor: its path may be too long for a socket."""
        try:
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return connect(f"/proc/self/fd/{folder}/{SOCKET}")
            finally:
                os.close(folder)
        except OSError as error:
            await self._on_failure(error)


def raise_refusal(packet: Packet) -> None:
    """Raise the machine's refusal as our error, if it refused."""
    message = packet.message
    if "result" not in message:
        packet.close()
        reason = str(message.get("message") or message.get("refused"))[:300]
        raise refusal_of(message) or RuntimeUnavailableError(reason=reason)
