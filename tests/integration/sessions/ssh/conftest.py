"""A sandbox behind a real SSH server, and OpenSSH's clients."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.kit.free_ports import free_port
from sandyard.kit.sql.database import SqliteDatabase
from sandyard.platform.schema.migrations import MIGRATIONS
from tests.fakes.runtime import FakeRuntime
from tests.integration.sessions.boxes import Box
from tests.integration.sessions.ssh.clients import SshClient, make_key
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import PlatformApi, platform_api

CONNECTIONS, CHANNELS = 100, 120


@pytest.fixture
def ssh_port() -> int:
    return free_port()


@pytest.fixture
async def api(
    tmp_path: Path, clock: ManualClock, runtime: FakeRuntime, ssh_port: int
) -> AsyncIterator[PlatformApi]:
    database = SqliteDatabase(tmp_path / "platform.db", schema="platform")
    await MIGRATIONS.upgrade(database)
    await database.close()
    chosen = {
        "ssh_port": ssh_port,
        "ssh_host": "127.0.0.1",
        "ssh_connections_per_account": CONNECTIONS,
        "gateway_connections": CHANNELS,
        "ssh_host_key_days": 100,
    }
    async with platform_api(None, tmp_path, clock, runtime=runtime, sandboxes=chosen) as api:
        await api.part.start()
        yield api


@pytest.fixture
async def ssh(box: Box, ssh_port: int, tmp_path: Path) -> SshClient:
    """With a key that the account has added."""
    make_key(tmp_path)
    client = SshClient(box, ssh_port, tmp_path, box.sandbox["sandbox_id"])
    await box.api.post("/ssh-keys", box.owner, {"name": "pc", "public_key": client.public_key})
    return client
