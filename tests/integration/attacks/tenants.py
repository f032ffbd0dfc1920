"""Attacks by an account, and by a client of the Broker."""

import asyncio
import gzip
import json
import tarfile
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import asyncssh

from sandyard.e2b_api.envd.connect import frame
from tests.integration.attacks.attacker import Attacker

JSON = {"Content-Type": "application/json"}
STREAM = {"Content-Type": "application/connect+json"}
START = "/e2b/process.Process/Start"
FILES = """
import os
os.mkdir("many")
for number in range(9000):
    open(f"many/{number:0100}", "w").close()
    os.setxattr(f"many/{number:0100}", "user.e2b.note", b"x" * 90)
"""


def process(script: str, program: str = "sh") -> dict[str, Any]:
    return {"process": {"cmd": program, "args": ["-c", script], "cwd": "/workspace"}}


async def builds(attacker: Attacker) -> None:
    """They print without end, and never a newline."""
    numbers = count()

    async def build() -> None:
        name = {"name": f"endless-{next(numbers)}"}
        asked = await attacker.call("POST", "/e2b/v3/templates", name)
        path = f"/templates/{asked['templateID']}/builds/{asked['buildID']}"
        step = {"type": "RUN", "args": ["tr '\\0' x < /dev/zero"]}
        await attacker.call("POST", f"/e2b/v2{path}", {"steps": [step]})
        while (await attacker.call("GET", f"/e2b{path}/status"))["status"] == "building":
            await asyncio.sleep(0.2)

    await attacker.at_once(5, build)


async def listings(attacker: Attacker) -> None:
    inside = await attacker.new_sandbox()
    made = frame(process(FILES, "python3"))
    answer = await attacker.request("POST", START, made, headers=inside | STREAM)
    assert b'"exitCode":0' in answer or b'"exited":true' in answer, answer
    body = json.dumps({"path": "/workspace/many", "depth": 1}).encode()
    call = "/e2b/filesystem.Filesystem/ListDir"
    await attacker.at_once(20, lambda: attacker.request("POST", call, body, headers=inside | JSON))


async def messages(attacker: Attacker) -> None:
    """Messages of just less than the limit, many on each stream."""
    inside = await attacker.new_sandbox()
    data = "A" * 1_000_000
    started = frame(process("cat > /dev/null") | {"tag": "reader", "stdin": True})
    reader = asyncio.create_task(attacker.request("POST", START, started, headers=inside | STREAM))
    await asyncio.sleep(1)
    first = frame({"start": {"process": {"tag": "reader"}}})
    body = first + frame({"data": {"input": {"stdin": data}}}) * 10
    call = "/e2b/process.Process/StreamInput"
    nested = json.dumps({"path": [[{}]] * 150_000}).encode()
    stat = "/e2b/filesystem.Filesystem/Stat"

    async def both() -> None:
        await attacker.request("POST", call, body, headers=inside | STREAM)
        await attacker.request("POST", stat, nested, headers=inside | JSON)

    await attacker.at_once(20, both)
    await reader


async def followers(attacker: Attacker) -> None:
    """Of an output that has nothing to read."""
    inside = await attacker.new_sandbox()
    path = f"/api/v1/sandboxes/{inside['E2b-Sandbox-Id']}/commands"
    silent = await attacker.call("POST", path, {"command": "sleep 3600", "background": True})
    output = f"{path}/{silent['command_id']}/output?follow=true"
    await attacker.at_once(
        1980, lambda: attacker.request("GET", output, headers=attacker.account), pause_sec=1
    )


async def fill_disk(attacker: Attacker) -> None:
    """Four sandboxes that write as fast as they can, and are started again when they are ended."""

    async def fill() -> None:
        inside = await attacker.new_sandbox()
        endless = frame(process("while true; do cat /dev/zero > large; done"))
        await attacker.request("POST", START, endless, headers=inside | STREAM)

    async def tried() -> None:
        try:
            await fill()
        except AssertionError:
            await asyncio.sleep(0.5)  # refused

    await attacker.at_once(4, tried)


async def uploads(attacker: Attacker) -> None:
    """Four megabytes that become four gigabytes."""
    inside = await attacker.new_sandbox()
    packed = gzip.compress(bytes(1 << 30), 9) * 4
    headers = inside | {"Content-Encoding": "gzip", "Content-Type": "application/octet-stream"}
    path = "/e2b/files?path=/workspace/large"
    await attacker.at_once(4, lambda: attacker.request("POST", path, packed, headers=headers))


async def images(attacker: Attacker) -> None:
    """Archives of a few megabytes that become gigabytes, deleted while they are read."""
    large = tarfile.TarInfo("blobs/sha256/large")
    large.size = 4 << 30
    zeros = gzip.compress(bytes(1 << 28), 9)
    packed = gzip.compress(large.tobuf()) + zeros * 16
    headers = attacker.account | {"Content-Type": "application/x-tar"}

    async def add() -> None:
        path = "/api/v1/images/import?name=large"
        answer = await attacker.request("POST", path, packed, headers=headers)
        if b" 202 " in answer.split(b"\r\n")[0]:
            await asyncio.sleep(0.5)
            image = json.loads(answer.partition(b"\r\n\r\n")[2])["image_id"]
            await attacker.request("DELETE", f"/api/v1/images/{image}", headers=attacker.account)

    await attacker.at_once(6, add)


async def dockerfiles(attacker: Attacker) -> None:
    """Of variables that double, and of patterns that no search ends."""
    doubled = [f"ENV a{number + 1}={f'$a{number}' * 20}" for number in range(30)]
    texts = (
        ["FROM base", "ENV a0=xxxxxxxxxx", *doubled],
        ["FROM base", f"ENV a={'x' * 60}", f"WORKDIR ${{a#{'*x' * 30}y}}"],
    )
    numbers = count()

    async def build() -> None:
        name = {"name": f"endless-{next(numbers)}"}
        asked = await attacker.call("POST", "/e2b/v3/templates", name)
        path = f"/e2b/v2/templates/{asked['templateID']}/builds/{asked['buildID']}"
        body = json.dumps({"dockerfile": "\n".join(texts[next(numbers) % 2])}).encode()
        await attacker.request("POST", path, body, headers=attacker.account | JSON)

    await attacker.at_once(10, build)


async def commands(attacker: Attacker) -> None:
    """Whose long answers are recorded, as each has an idempotency key."""
    inside = await attacker.new_sandbox()
    path, numbers = f"/api/v1/sandboxes/{inside['E2b-Sandbox-Id']}/commands", count()
    body = json.dumps({"command": "head -c 1000000 /dev/zero"}).encode()

    async def run() -> None:
        headers = attacker.account | JSON | {"Idempotency-Key": f"key-{next(numbers)}"}
        await attacker.request("POST", path, body, headers=headers)

    await attacker.at_once(10, run)


async def unread_ssh(attacker: Attacker) -> None:
    """Endless output for clients that give it all room and read nothing, and input that nobody
    reads."""
    inside = await attacker.new_sandbox()
    key = asyncssh.generate_private_key("ssh-ed25519")
    public = {"name": "key", "public_key": key.export_public_key().decode()}
    await attacker.call("POST", "/api/v1/ssh-keys", public)
    address = await attacker.call("GET", "/api/v1/ssh-keys/address")
    user, typed = inside["E2b-Sandbox-Id"], b"x" * 1_000_000

    connect = partial(
        asyncssh.connect,
        *("127.0.0.1", address["port"]),
        username=user,
        client_keys=[key],
        known_hosts=None,
        config=None,
    )
    async with connect() as connection:
        await connection.run("true", check=True)

    async def leave_unread() -> None:
        async with connect() as connection:
            unread: list[asyncssh.SSHClientChannel[bytes]] = []
            for command in ("cat /dev/zero", "sleep 1000"):
                channel, _ = await connection.create_session(
                    asyncssh.SSHClientSession, command, window=1 << 31, encoding=None
                )
                unread.append(channel)
            connection._transport.pause_reading()  # type: ignore[union-attr]
            unread[1].write(typed)
            await asyncio.Event().wait()

    async def tried() -> None:
        with suppress(asyncssh.Error):
            await leave_unread()

    await attacker.at_once(50, tried)


async def changes(attacker: Attacker) -> None:
    """A PATCH in a loop, with a long text."""
    made = await attacker.call("POST", "/api/v1/projects", {"name": "changed"})
    path, numbers = f"/api/v1/projects/{made['project_id']}", count()

    async def change() -> None:
        body = json.dumps({"description": f"{next(numbers):08}" * 1200}).encode()
        await attacker.request("PATCH", path, body, headers=attacker.account | JSON)

    await attacker.at_once(20, change)


async def revoked_streams(attacker: Attacker) -> None:
    """Keys that are deleted while a hundred streams are open with them."""
    inside = await attacker.new_sandbox()
    path = f"/api/v1/sandboxes/{inside['E2b-Sandbox-Id']}/commands"
    silent = await attacker.call("POST", path, {"command": "sleep 3600", "background": True})
    output, numbers = f"{path}/{silent['command_id']}/output?follow=true", count()

    async def revoke() -> None:
        new_key = {"name": f"key-{next(numbers)}", "scope": "run"}
        key = await attacker.call("POST", "/api/v1/api-keys", new_key)
        headers = {"Authorization": f"Bearer {key['api_key']}"}
        opened = [attacker.request("GET", output, headers=headers) for _ in range(50)]
        streams = asyncio.gather(*opened, return_exceptions=True)
        await asyncio.sleep(1)
        await attacker.call("DELETE", f"/api/v1/api-keys/{key['key_id']}")
        await streams

    await attacker.at_once(2, revoke)


async def replacements(attacker: Attacker) -> None:
    """Allocate, replace and release in a loop, by a client that may have one lease."""
    numbers = count()

    async def loop() -> None:
        headers = attacker.track | {"X-Track-ID": f"loop-{next(numbers)}"} | JSON
        answer = await attacker.request("POST", "/v1/allocate", headers=headers)
        head, _, body = answer.partition(b"\r\n\r\n")
        if b" 201 " not in head.split(b"\r\n")[0]:
            return
        while b'"sandbox_id"' in body:
            sandbox_id = json.loads(body)["sandbox_id"]
            path, why = f"/v1/sandboxes/{sandbox_id}/replace", b'{"reason": "broken"}'
            answer = await attacker.request("POST", path, why, headers=headers)
            head, _, body = answer.partition(b"\r\n\r\n")
            if not head.split(b" ")[1].startswith(b"2"):
                break
        await attacker.request("POST", "/v1/release", headers=headers)

    await attacker.at_once(20, loop)
