"""The host key, and what the protocol offers."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.integration.sessions.ssh.clients import SshClient, run
from tests.support.platform.in_process import platform_api

DAY = 24 * 3600


async def test_clients_learn_the_next_host_key_before_it_is_used(ssh: SshClient) -> None:
    api = ssh.box.api
    known = ssh.folder / "known_hosts"
    learning = ("-o", "UpdateHostKeys=yes")
    assert (await ssh.run("true", options=learning)).code == 0
    first = known.read_text()

    await set_age(ssh, days=101)
    assert (await ssh.run("true", options=learning)).code == 0
    assert known.read_text().startswith(first)
    assert len(known.read_text().splitlines()) == 2

    await set_age(ssh, days=31)
    strict = ("-o", "StrictHostKeyChecking=yes", *learning)
    assert (await ssh.run("true", options=strict)).code == 0
    [last] = known.read_text().splitlines()
    assert last not in first
    shown = await api.get("/ssh-keys/address", await api.account())
    assert (shown["port"], shown["host"]) == (ssh.port, "test")
    assert last.endswith(shown["host_keys"][0])


async def set_age(ssh: SshClient, *, days: int) -> None:
    server = ssh.box.api.part.ssh.server
    assert server is not None
    ssh.box.api.clock.advance(days * DAY)
    await server.renew()


async def test_all_replicas_have_one_host_key_and_none_is_stored_in_the_clear(
    ssh: SshClient,
) -> None:
    api = ssh.box.api
    async with platform_api(None, api.data_dir, api.clock, sandboxes={"ssh_port": 1}) as other:
        owner = await api.account()
        theirs = await other.get("/ssh-keys/address", owner)

    assert theirs["host_keys"] == (await api.get("/ssh-keys/address", owner))["host_keys"]
    stored = b"".join(file.read_bytes() for file in api.data_dir.glob("platform.db*"))
    assert b"OPENSSH PRIVATE KEY" not in stored


async def test_an_audit_finds_nothing_but_the_key_exchange_of_older_clients(
    ssh: SshClient,
) -> None:
    words = [
        str(Path(sys.executable).with_name("ssh-audit")),
        "--json",
        "--skip-rate-test",
        "-p",
        str(ssh.port),
        "127.0.0.1",
    ]
    result = await run(words)

    shown = json.loads(result.out)
    kinds = ("kex", "key", "enc", "mac")
    findings = {each["algorithm"] for kind in kinds for each in shown[kind] if is_found(each)}
    assert findings == {"curve25519-sha256", "curve25519-sha256@libssh.org"}
    assert shown["kex"][0]["algorithm"] == "mlkem768x25519-sha256"


def is_found(offered: dict[str, Any]) -> bool:
    return bool({"warn", "fail"} & offered.get("notes", {}).keys())
