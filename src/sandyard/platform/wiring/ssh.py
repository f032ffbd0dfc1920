"""The SSH server, wired."""

from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import APIRouter

from sandyard.kit.concurrency.streams import StreamLimit
from sandyard.platform.sessions.ssh.host_keys import HostKeys
from sandyard.platform.sessions.ssh.logins import SshLogins
from sandyard.platform.sessions.ssh.sql import SqlHostKeyStore
from sandyard.platform.ssh_keys.http import create_ssh_keys_router
from sandyard.platform.ssh_keys.model import SshAddress
from sandyard.platform.ssh_keys.service import SshKeys
from sandyard.platform.ssh_keys.sql import SqlSshKeyStore
from sandyard.platform.variables.cipher import Cipher
from sandyard.platform.wiring.sandboxes import SandboxesWired
from sandyard.platform.wiring.shared import Shared
from sandyard.settings import SettingsError

if TYPE_CHECKING:  # an extra
    from sandyard.platform.sessions.ssh.server import SshServer


@dataclass(frozen=True, slots=True)
class SshWired:
    router: APIRouter
    server: "SshServer | None"


def build_ssh(shared: Shared, wired: SandboxesWired) -> SshWired:
    """Raises SettingsError without the extra `ssh`."""
    settings, clock = shared.settings, shared.clock
    store = SqlSshKeyStore(shared.database, shared.transitions)
    host_keys = HostKeys(
        SqlHostKeyStore(shared.database),
        Cipher(settings.secret("secrets_key")),
        clock=clock,
        rotated_after=timedelta(days=settings.sandboxes.ssh_host_key_days),
    )
    host = urlsplit(settings.platform.public_url or "").hostname or settings.sandboxes.ssh_host
    router = create_ssh_keys_router(
        SshKeys(store, clock=clock),
        SshAddress(host, settings.sandboxes.ssh_port),
        host_keys.public,
        shared.guard,
    )
    logins = SshLogins(store, wired.targets, shared.guard)
    return SshWired(router, _server(shared, wired, logins, host_keys))


def _server(
    shared: Shared, wired: SandboxesWired, logins: SshLogins, host_keys: HostKeys
) -> "SshServer | None":
    chosen = shared.settings.sandboxes
    if chosen.ssh_port is None:
        return None
    if find_spec("asyncssh") is None:
        raise SettingsError("SSH_PORT: needs the extra `ssh`: install sandyard[ssh]")
    from sandyard.platform.sessions.ssh.server import SshServer

    return SshServer(
        chosen.ssh_host,
        chosen.ssh_port,
        logins,
        wired.sessions,
        wired.commands,
        host_keys,
        connections=StreamLimit(chosen.ssh_connections_per_account),
        channels=StreamLimit(chosen.gateway_connections),
    )
