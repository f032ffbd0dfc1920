"""Who gets in by SSH, and for how long."""

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.sessions.boxes import Box
from tests.integration.sessions.ssh.clients import SshClient, make_key
from tests.integration.sessions.ssh.conftest import CONNECTIONS
from tests.support.platform.sandboxes import act, add_sandbox

SOON_SEC = 30


async def keys_of(box: Box) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await box.api.get("/ssh-keys", box.owner))["ssh_keys"]
    return found


async def remove_key(box: Box) -> None:
    [key] = await keys_of(box)
    answer = await box.api.call("DELETE", f"/ssh-keys/{key['ssh_key_id']}", box.owner)
    assert answer.status_code == 204


async def deactivate_account(box: Box) -> None:
    admin = await box.api.admin()
    await box.api.post(f"/admin/users/{box.owner.account_id}/deactivate", admin)


async def stop_sandbox(box: Box) -> None:
    await act(box.api, box.owner, box.sandbox, "stop")


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (remove_key, "Your SSH key was removed."),
        (deactivate_account, ""),
        (stop_sandbox, ""),
    ],
)
async def test_a_session_ends_soon_after_its_credential(
    ssh: SshClient, end: Callable[[Box], Awaitable[None]], message: str
) -> None:
    process = await ssh.start("echo in; sleep 1000", stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert await process.stdout.readline() == b"in\n"

    await end(ssh.box)

    _, errors = await asyncio.wait_for(process.communicate(), SOON_SEC)
    assert process.returncode != 0
    assert message in errors.decode()
    assert (await ssh.run("true")).code != 0


async def test_a_key_that_was_never_added(ssh: SshClient) -> None:
    ssh.key_file.unlink()
    ssh.key_file.with_suffix(".pub").unlink()
    make_key(ssh.folder)

    result = await ssh.run("true")

    assert (result.code, "Permission denied (publickey)" in result.errors) == (255, True)


async def test_a_key_opens_no_sandbox_of_others_and_none_that_is_not_there(ssh: SshClient) -> None:
    api = ssh.box.api
    other = await api.account()
    theirs = await add_sandbox(api, other)
    await act(api, other, theirs, "start")

    for user in (theirs["sandbox_id"], "sbx-aaaaaaaaaaaaaaaaa", "root"):
        result = await SshClient(ssh.box, ssh.port, ssh.folder, user).run("true")
        assert (result.code, "Permission denied (publickey)" in result.errors) == (255, True)


async def test_a_key_that_an_api_key_added_ends_with_it(ssh: SshClient) -> None:
    await remove_key(ssh.box)
    api_key = await ssh.box.api.post("/api-keys", ssh.box.owner, {"name": "cli"})
    body = {"name": "pc", "public_key": ssh.public_key}
    headers = {"X-API-Key": api_key["api_key"]}
    await ssh.box.api.call("POST", "/ssh-keys", json=body, headers=headers)
    process = await ssh.start("echo in; sleep 1000", stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert await process.stdout.readline() == b"in\n"

    path = f"/api-keys/{api_key['key_id']}/deactivate"
    await ssh.box.api.post(path, ssh.box.owner)

    _, errors = await asyncio.wait_for(process.communicate(), SOON_SEC)
    assert "Your credential has ended. Log in again." in errors.decode()
    assert (await ssh.run("true")).code == 255


@pytest.mark.parametrize(("kind", "bits"), [("ecdsa", 384), ("rsa", 3072)])
async def test_other_kinds_of_keys(ssh: SshClient, tmp_path: Path, kind: str, bits: int) -> None:
    folder = tmp_path / kind
    folder.mkdir()
    make_key(folder, kind=kind, bits=bits)
    client = SshClient(ssh.box, ssh.port, folder, ssh.user)
    body = {"name": kind, "public_key": client.public_key}
    await ssh.box.api.post("/ssh-keys", ssh.box.owner, body)

    assert (await client.run("true")).code == 0


async def test_a_sandbox_wakes_if_its_owner_wants_that(ssh: SshClient) -> None:
    await stop_sandbox(ssh.box)
    assert "not running" in (await ssh.run("true")).errors

    await ssh.box.ask("PATCH", "", json={"wake_on_request": True})

    assert (await ssh.run("echo awake")).out == b"awake\n"


async def test_too_many_connections_of_one_account(ssh: SshClient) -> None:
    server = ssh.box.api.part.ssh.server
    assert server is not None
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(server.connections.opened(ssh.box.owner.account_id))

        assert (await ssh.run("sleep 60")).code == 255
    assert (await ssh.run("true")).code == 0


async def test_strangers_who_never_log_in_keep_nobody_else_out(ssh: SshClient) -> None:
    server = ssh.box.api.part.ssh.server
    assert server is not None
    async with AsyncExitStack() as stack:
        for _ in range(150):
            _, writer = await asyncio.open_connection("127.0.0.1", ssh.port)
            stack.callback(writer.close)
        async with asyncio.timeout(60):
            while len(server.waiting) < 100:
                await asyncio.sleep(0.01)
        assert (await ssh.run("true", options=("-b", "127.0.0.2"))).code == 0
        assert len(server.waiting) <= 100


async def test_agents_and_ports_of_the_client_are_not_forwarded(ssh: SshClient) -> None:
    agent = await ssh.run("echo ${SSH_AUTH_SOCK:-none}", options=("-A",))
    remote = await ssh.run(
        "true", options=("-o", "ExitOnForwardFailure=yes", "-R", "20001:127.0.0.1:22")
    )

    assert agent.out == b"none\n"
    assert remote.code == 255
