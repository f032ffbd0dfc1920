"""OpenSSH's own clients, with a key of their own."""

import asyncio
import os
import subprocess
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandyard.runtime.sessions.ports import Session
from tests.integration.sessions.boxes import Box


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: bytes
    errors: str


@dataclass(frozen=True, slots=True)
class SshClient:
    box: Box
    port: int
    folder: Path
    user: str

    @property
    def key_file(self) -> Path:
        return self.folder / "id_ed25519"

    @property
    def public_key(self) -> str:
        return self.key_file.with_suffix(".pub").read_text()

    def options(self, *more: str) -> list[str]:
        known = [
            f"UserKnownHostsFile={self.folder / 'known_hosts'}",
            *("StrictHostKeyChecking=accept-new", "BatchMode=yes", "LogLevel=ERROR"),
            *("IdentitiesOnly=yes", f"IdentityFile={self.key_file}", *more),
        ]
        return ["-F", "none", *(word for each in known for word in ("-o", each))]

    def words(self, *command: str, options: tuple[str, ...] = ()) -> list[str]:
        return [
            *("ssh", *self.options(), "-p", str(self.port), *options),
            f"{self.user}@127.0.0.1",
            *command,
        ]

    async def run(self, *command: str, options: tuple[str, ...] = (), typed: bytes = b"") -> Result:
        return await run(self.words(*command, options=options), typed)

    async def sftp(self, *lines: str) -> Result:
        words = ["sftp", *self.options(), "-P", str(self.port), "-b", "-"]
        return await run([*words, f"{self.user}@127.0.0.1"], "\n".join(lines).encode())

    async def scp(self, source: str, target: str, *options: str) -> Result:
        """`box:` stands for the sandbox."""
        here = f"{self.user}@127.0.0.1:"
        names = [each.replace("box:", here) for each in (source, target)]
        return await run(["scp", *self.options(), "-P", str(self.port), *options, *names])

    async def start(self, *command: str, options: tuple[str, ...] = (), **streams: Any) -> Any:
        return await asyncio.create_subprocess_exec(
            *self.words(*command, options=options), env=_environment(), **streams
        )


async def opened_session(ssh: SshClient) -> Session:
    """Into the sandbox, not by SSH."""
    sessions = ssh.box.api.part.wired.sessions
    return await sessions.open(ssh.user, account_id=ssh.box.owner.account_id)


async def run(words: list[str], typed: bytes = b"") -> Result:
    process = await asyncio.create_subprocess_exec(
        *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=_environment()
    )
    out, errors = await process.communicate(typed)
    return Result(process.returncode or 0, out, errors.decode())


def _environment() -> dict[str, str]:
    """Without the caller's agent."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_TIME": "C.UTF-8"}


def make_key(folder: Path, name: str = "id_ed25519", kind: str = "ed25519", bits: int = 0) -> None:
    words = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "me@pc", "-f", str(folder / name)]
    subprocess.run([*words, *(["-b", str(bits)] if bits else [])], check=True)
