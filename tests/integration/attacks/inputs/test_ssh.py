"""What an SSH client sends without end, or never reads: the server stores little of it."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import suppress

import asyncssh
import pytest

from tests.integration.sessions.conftest import box as box
from tests.integration.sessions.ssh.clients import SshClient
from tests.integration.sessions.ssh.conftest import CHANNELS
from tests.integration.sessions.ssh.conftest import api as api
from tests.integration.sessions.ssh.conftest import ssh as ssh
from tests.integration.sessions.ssh.conftest import ssh_port as ssh_port

MOST_STORED = 8 << 20
HUGE = 1 << 31
ANSWERS = 10


@pytest.fixture
async def connection(ssh: SshClient) -> AsyncIterator[asyncssh.SSHClientConnection]:
    async with connect(ssh) as connection:
        yield connection


def connect(ssh: SshClient) -> asyncssh.misc._ACMWrapper[asyncssh.SSHClientConnection]:
    keys = [str(ssh.key_file)]
    return asyncssh.connect(
        "127.0.0.1", ssh.port, username=ssh.user, client_keys=keys, known_hosts=None, config=None
    )


def stored_bytes() -> int:
    """What this process's SSH servers have written and their clients have not read."""
    found = [each for each in gc.get_objects() if isinstance(each, asyncssh.SSHServerConnection)]
    return sum(
        each._transport.get_write_buffer_size()
        + sum(channel.get_write_buffer_size() for channel in each._channels.values())
        for each in found
        if each._transport is not None
    )


async def is_there(ssh: SshClient, path: str) -> bool:
    result = await ssh.box.run(["test", "-e", path])
    return result["exit_code"] == 0  # type: ignore[no-any-return]


@pytest.mark.parametrize("reads_packets", [True, False])
async def test_output_that_nobody_reads_waits(
    ssh: SshClient, connection: asyncssh.SSHClientConnection, *, reads_packets: bool
) -> None:
    """Whether the client gives the channel no room, or leaves all in its socket."""
    window = 1 if reads_packets else HUGE
    channel, _ = await connection.create_session(
        asyncssh.SSHClientSession,
        "head -c 50000000 /dev/zero; touch written; sleep 60",
        window=window,
        encoding=None,
    )
    if not reads_packets:
        connection._transport.pause_reading()  # type: ignore[union-attr]
    async with asyncio.timeout(60):
        while not await is_there(ssh, "written"):
            assert stored_bytes() < MOST_STORED
    for _ in range(ANSWERS):
        assert (await ssh.box.run(["true"]))["exit_code"] == 0
        assert stored_bytes() < MOST_STORED
    channel.abort()


async def test_a_long_read_is_answered_in_part(
    ssh: SshClient, connection: asyncssh.SSHClientConnection
) -> None:
    await ssh.box.run(["truncate", "-s", "1G", "large"])
    async with connection.start_sftp_client() as sftp, sftp.open("large", "rb") as file:
        data, _ = await file._handler.read(file._handle or b"", 0, 1 << 30)
    assert 0 < len(data) <= 1 << 18


async def test_requests_whose_answers_nobody_reads_close_the_channel(
    connection: asyncssh.SSHClientConnection,
) -> None:
    channel, _ = await connection.create_session(
        asyncssh.SSHClientSession, subsystem="sftp", window=1, encoding=None
    )
    path = b"x" * 30_000
    request = b"\x10" + bytes(4) + len(path).to_bytes(4, "big") + path  # realpath
    channel.write((5).to_bytes(4, "big") + b"\x01" + (3).to_bytes(4, "big"))
    for _ in range(400):
        channel.write(len(request).to_bytes(4, "big") + request)
    async with asyncio.timeout(60):
        while not channel.is_closing():
            assert stored_bytes() < MOST_STORED
            await asyncio.sleep(0.05)


async def test_an_account_has_few_channels_and_open_files(
    ssh: SshClient, connection: asyncssh.SSHClientConnection
) -> None:
    await ssh.box.run(["touch", "file"])
    async with connection.start_sftp_client() as sftp:
        opened = [await sftp.open("file") for _ in range(20)]
        for _ in range(CHANNELS - len(opened) - 1):
            await connection.create_session(Idle)
        with pytest.raises(asyncssh.ChannelOpenError, match="Too many"):
            await connection.create_session(Idle)
        with pytest.raises(asyncssh.SFTPFailure, match="Too many"):
            await sftp.open("file")
        for file in opened:
            await file.close()
        await (await sftp.open("file")).close()
    connection.abort()
    async with asyncio.timeout(60), connect(ssh) as again:
        while True:
            with suppress(asyncssh.ChannelOpenError):
                assert (await again.run("true")).exit_status == 0
                return


class Idle(asyncssh.SSHClientSession[str]):
    """Asks for no program."""


async def test_a_client_sets_few_variables(connection: asyncssh.SSHClientConnection) -> None:
    many = {f"LC_{number}": "x" for number in range(5000)}
    result = await connection.run("env | grep -c LC_", env=many)
    assert int(str(result.stdout)) == 100
