"""Sockets in the network of a Pod, which are used from outside: a helper in that network makes
them."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence

from tests.support.kubernetes import socket_helper


class PodSockets:
    def __init__(
        self, helper: Process, control: socket.socket, listening: Sequence[socket.socket]
    ) -> None:
        self.helper = helper
        self.listening = listening
        """Inside, in the order of their ports."""
        self._control = control
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, pid: int, ports: Sequence[int]) -> "PodSockets":
        """In the network of this process, where nothing listens on these ports yet."""
        ours, theirs = socket.socketpair()
        user = () if os.getuid() == 0 else ("-U", "--preserve-credentials")
        with theirs:
            helper = await asyncio.create_subprocess_exec(
                *("nsenter", "-t", str(pid), *user, "-n", "--"),
                *(sys.executable, "-S", "-E", socket_helper.__file__, *map(str, ports)),
                stdin=theirs.fileno(),
            )
        try:
            return cls(helper, ours, await asyncio.to_thread(_receive, ours, len(ports)))
        except BaseException:  # its Pod has ended
            ours.close()
            await helper.wait()
            raise

    async def connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To a port inside. Raises OSError."""
        async with self._turn:
            self._control.send(b".")
            [made] = await asyncio.to_thread(_receive, self._control, 1)
        try:
            made.settimeout(0)
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
        except OSError:
            made.close()
            raise
        return await asyncio.open_connection(sock=made)

    def close(self) -> None:
        self._control.shutdown(socket.SHUT_RDWR)  # whoever waits for a socket
        self._control.close()


def _receive(control: socket.socket, count: int) -> list[socket.socket]:
    sign, descriptors, _, _ = socket.recv_fds(control, 1, count)
    if not sign:
        raise ConnectionError("the Pod is gone")
    return [socket.socket(fileno=each) for each in descriptors]
