"""The SSH server: connections, their logins and their ports."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import asyncssh

from sandyard.kit.concurrency.streams import StreamLimit
from sandyard.kit.errors import SandyardError
from sandyard.kit.http.access_watch import until_refused
from sandyard.kit.http.client_address import network_of
from sandyard.platform.sessions.commands.service import Commands
from sandyard.platform.sessions.service import Sessions
from sandyard.platform.sessions.ssh.access import SandboxAccess, in_background
from sandyard.platform.sessions.ssh.channels import Channel, paced_by_client
from sandyard.platform.sessions.ssh.host_keys import HostKeys
from sandyard.platform.sessions.ssh.logins import SshLogins
from sandyard.platform.sessions.ssh.model import SshLogin

logger = logging.getLogger(__name__)

_ALGORITHMS = {
    "kex_algs": ["mlkem768x25519-sha256", "curve25519-sha256", "curve25519-sha256@libssh.org"],
    "encryption_algs": ["aes256-gcm@openssh.com", "aes128-gcm@openssh.com", "aes256-ctr"],
    "mac_algs": ["hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com"],
    "compression_algs": None,
}
"""Fast ones that every client of the last ten years has, without known weaknesses."""
_LOGIN_SEC = 20
_LOGINS_AT_ONCE = 100
_KEYS_TRIED = 20
_ALIVE_SEC = 30
_HOST_KEYS_SEC = 60
WINDOW_BYTES = 256 * 1024
"""What a client may send on a channel before it is read."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(slots=True, eq=False)
class SshServer:
    host: str
    port: int
    logins: SshLogins
    sessions: Sessions
    commands: Commands
    host_keys: HostKeys
    connections: StreamLimit
    """Those of each account."""
    channels: StreamLimit
    """Those of each account, and the files that it has open by SFTP."""
    waiting: dict["_Connection", str] = field(default_factory=dict)
    """Connections that have not logged in yet, the oldest first, with their networks."""
    _acceptor: asyncssh.SSHAcceptor | None = None
    _renewal: asyncio.Task[None] | None = None

    async def open(self) -> None:
        asyncssh.set_log_level("WARNING")
        keys = await self._keys()
        self._acceptor = await asyncssh.listen(
            self.host,
            self.port,
            reuse_port=True,
            server_factory=partial(_Connection, self),
            encoding=None,
            line_editor=False,
            agent_forwarding=False,
            x11_forwarding=False,
            server_host_keys=keys,
            send_server_host_keys=True,
            server_version="Sandyard",
            login_timeout=_LOGIN_SEC,
            keepalive_interval=_ALIVE_SEC,
            window=WINDOW_BYTES,
            config=None,
            **_ALGORITHMS,
        )
        self._renewal = asyncio.create_task(self._keep_renewing())

    def admit(self, connection: "_Connection", network: str) -> None:
        """If too many wait, the oldest one ends of the network with the most: who opens many
        displaces only its own."""
        self.waiting[connection] = network
        if len(self.waiting) > _LOGINS_AT_ONCE:
            [(crowded, _)] = Counter(self.waiting.values()).most_common(1)
            next(each for each, found in self.waiting.items() if found == crowded).abort()

    async def close(self) -> None:
        """End all connections."""
        if self._renewal is not None:
            self._renewal.cancel()
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()

    async def _keys(self) -> Sequence[asyncssh.SSHKey]:
        return [asyncssh.import_private_key(each) for each in await self.host_keys.current()]

    async def renew(self) -> None:
        """Use the host keys that are in force now, for new connections."""
        if self._acceptor is not None:
            self._acceptor.update(server_host_keys=await self._keys())

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(_HOST_KEYS_SEC)
            with suppress(SandyardError):
                await self.renew()


class _Connection(asyncssh.SSHServer):
    def __init__(self, server: SshServer) -> None:
        self._server = server
        self._keys_tried = 0
        self._watch: asyncio.Task[None] | None = None
        self._access: SandboxAccess
        self._connection: asyncssh.SSHServerConnection
        self._may_write: asyncio.Event

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._may_write = paced_by_client(conn)
        self._server.admit(self, network_of(conn.get_extra_info("peername")[0]))

    def abort(self) -> None:
        self._server.waiting.pop(self, None)
        self._connection.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server.waiting.pop(self, None)
        self._may_write.set()
        if self._watch is not None:
            self._watch.cancel()

    def public_key_auth_supported(self) -> bool:
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        self._keys_tried += 1
        if self._keys_tried > _KEYS_TRIED:
            raise asyncssh.DisconnectError(
                asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, "Too many keys were tried."
            )
        try:
            login = await self._server.logins.find(username, key.public_data)
        except SandyardError as error:
            raise asyncssh.DisconnectError(
                asyncssh.DISC_SERVICE_NOT_AVAILABLE, error.message
            ) from error
        if login is None:
            return False
        server = self._server
        self._access = SandboxAccess(
            login, server.sessions, server.commands, server.channels, self._may_write
        )
        self._connection.set_extra_info(access=self._access)
        return True

    def auth_completed(self) -> None:
        self._server.waiting.pop(self, None)
        self._watch = self._connection.create_task(self._end_with(self._access.login))

    async def _end_with(self, login: SshLogin) -> None:
        """End the connection with the login. `disconnect` would close the channels first: clients
        then end without reading why."""
        about = {"sandbox_id": login.sandbox_id, "account_id": login.account_id}
        logger.info("ssh login", extra={**about, "fingerprint": login.fingerprint})
        logins, sessions = self._server.logins, self._server.sessions
        try:
            with self._server.connections.opened(login.account_id):
                await logins.wake(login)
                self._access.is_ready.set()
                using = sessions.keep_using(login.sandbox_id, account_id=login.account_id)
                async with in_background(using):
                    await until_refused(partial(logins.require, login))
        except SandyardError as error:
            raise asyncssh.DisconnectError(asyncssh.DISC_BY_APPLICATION, error.message) from error

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        return Channel(self._access.opened())

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> tuple[asyncssh.SSHTCPChannel[bytes], Awaitable[asyncssh.SSHTCPSession[bytes]]]:
        """Only to ports of the sandbox itself."""
        del orig_host, orig_port
        if dest_host not in _LOOPBACK:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "Only to localhost, in the sandbox."
            )
        opening = self._access.open_port(dest_port)
        return self._connection.create_tcp_channel(window=WINDOW_BYTES), opening
