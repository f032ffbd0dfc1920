"""What is done inside one sandbox, by its files and its shell.

All paths are from the home folder of the sandbox's user, where every command begins.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandyard.kit import e2b as kit
from sandyard.platform.runtime.e2b import scripts
from sandyard.platform.runtime.e2b.errors import E2bTroubleError, translation
from sandyard.platform.runtime.errors import CloneFailedError, UnsafePathError
from sandyard.platform.runtime.model import FileChanges, Owner
from sandyard.platform.runtime.repositories import (
    GIT_ENVIRONMENT,
    clone_command,
    clone_failure,
    clone_too_slow,
)

if TYPE_CHECKING:
    from e2b import AsyncSandbox

_HOME = "~"
"""Said each time: a template may have another folder for commands."""
_MARK = "SANDYARD_PROGRAM"
"""The variable that all processes of a program have."""


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    said: str
    trouble: str


@dataclass(frozen=True, slots=True)
class Log:
    """A stretch of what the program wrote, from this byte on."""

    begins_at: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Use:
    workspace_bytes: int
    processes: int


class Inside:
    def __init__(self, sandbox: "AsyncSandbox", *, port: int, timeout_sec: float) -> None:
        self._sandbox = sandbox
        self._port = {"PORT": str(port)}
        self._timeout_sec = timeout_sec

    @property
    def sandbox_id(self) -> str:
        return self._sandbox.sandbox_id

    async def clone(self, url: str, *, timeout_sec: float) -> None:
        """Fill the workspace from a repository. Raises CloneFailedError."""
        script = scripts.clone(clone_command(url, protocol="https"), timeout_sec=timeout_sec)
        outcome = await self._run(script, envs=GIT_ENVIRONMENT, more_sec=timeout_sec)
        if outcome.code == scripts.TOO_SLOW:
            raise CloneFailedError(clone_too_slow(timeout_sec))
        if outcome.code:
            raise CloneFailedError(clone_failure(outcome.trouble))

    async def apply(self, changes: FileChanges) -> None:
        """Bring the workspace up to date, each file at once. Raises UnsafePathError."""
        incoming = f"{scripts.STATE}/incoming"
        written = sorted(changes.written)
        files = {f"{incoming}/{n}": changes.written[path] for n, path in enumerate(written)}
        lists = {"written": written, "deleted": sorted(changes.deleted)}
        for name, paths in lists.items():
            files[f"{incoming}/{name}"] = "".join(f"{path}\0" for path in paths).encode()
        async with kit.translated(self._timeout_sec, translation):
            await kit.upload(self._sandbox, files)
        outcome = await self._run(scripts.APPLY)
        if outcome.code == scripts.UNSAFE:
            raise UnsafePathError(outcome.trouble)
        _require(outcome)

    async def procfile(self) -> str | None:
        """The Procfile at the top of the workspace, if it is a plain file."""
        outcome = await self._run(scripts.PROCFILE)
        return None if outcome.code == scripts.NO_FILE else _require(outcome).said

    async def launch(self, command: str, *, owner: Owner, environment: Mapping[str, str]) -> None:
        """Start the program; it goes on by itself."""
        _require(await self._run(scripts.CLEAR))
        envs = {"PYTHONUNBUFFERED": "1", **environment, **self._port, _MARK: str(owner)}
        async with kit.translated(self._timeout_sec, translation):
            started = await self._sandbox.commands.run(
                scripts.launch(command),
                background=True,
                envs=envs,
                cwd=_HOME,
                timeout=0,
            )
            await started.disconnect()

    async def listens(self, *, timeout_sec: float) -> bool:
        """Whether it listens on its port in time; False if it has ended or does not."""
        script = scripts.until_listening(timeout_sec=timeout_sec)
        return (await self._run(script, envs=self._port, more_sec=timeout_sec * 2)).code == 0

    async def exit_code(self) -> int | None:
        """The program's, once it has ended by itself."""
        from e2b import FileNotFoundException

        async with kit.translated(self._timeout_sec, translation, FileNotFoundException):
            try:
                return int(await self._sandbox.files.read(f"{scripts.STATE}/exit"))
            except FileNotFoundException:
                return None

    async def end_program(self, owner: Owner) -> None:
        """End all its processes, also those that left their parents."""
        await self._run(scripts.end(f"{_MARK}={owner}"))

    async def read_log(self, begin: int | None = None) -> Log:
        """What the program wrote from this byte on, or the last of it; a megabyte at most."""
        outcome = _require(await self._run(scripts.log(begin)))
        begins_at, _, encoded = outcome.said.partition("\n")
        return Log(int(begins_at), base64.b64decode(encoded))

    async def use(self) -> Use:
        size, processes = _require(await self._run(scripts.USE)).said.split()
        return Use(int(size), int(processes))

    async def _run(
        self, script: str, *, envs: Mapping[str, str] | None = None, more_sec: float = 0
    ) -> Outcome:
        from e2b import CommandExitException

        async with kit.translated(self._timeout_sec + more_sec, translation, CommandExitException):
            try:
                done = await self._sandbox.commands.run(
                    script, envs=dict(envs or {}), cwd=_HOME, timeout=0
                )
            except CommandExitException as error:
                return Outcome(error.exit_code, error.stdout or "", error.stderr or "")
        return Outcome(0, done.stdout, done.stderr)


def _require(outcome: Outcome) -> Outcome:
    if outcome.code:
        raise E2bTroubleError(reason=f"a command ended with {outcome.code}: {outcome.trouble}")
    return outcome
