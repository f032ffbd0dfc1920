"""A session into one sandbox, by its files and its shell.

All paths are from the home folder of the sandbox's user, where every command begins.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandyard.kit import e2b as kit
from sandyard.runtime.e2b import scripts
from sandyard.runtime.e2b.errors import E2bUnavailableError, translation
from sandyard.runtime.errors import CloneFailedError, UnsafePathError
from sandyard.runtime.model import FileChanges, RunId
from sandyard.runtime.repositories import (
    GIT_ENVIRONMENT,
    clone_command,
    clone_failure,
    clone_too_slow,
)

if TYPE_CHECKING:
    from e2b import AsyncSandbox

_HOME = "~"
"""Given each time: a template may have another folder for commands."""
_RUN_ID_VARIABLE = "SANDYARD_PROGRAM"
"""The variable that all processes of a program have."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Log:
    """A stretch of what the program wrote, from this byte on."""

    begins_at: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Usage:
    workspace_bytes: int
    processes: int


class Session:
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
        result = await self._run(script, envs=GIT_ENVIRONMENT, more_sec=timeout_sec)
        if result.code == scripts.TOO_SLOW:
            raise CloneFailedError(clone_too_slow(timeout_sec))
        if result.code:
            raise CloneFailedError(clone_failure(result.stderr))

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
        result = await self._run(scripts.APPLY)
        if result.code == scripts.UNSAFE:
            raise UnsafePathError(result.stderr)
        _require(result)

    async def procfile(self) -> str | None:
        """The Procfile at the top of the workspace, if it is a plain file."""
        result = await self._run(scripts.PROCFILE)
        return None if result.code == scripts.NO_FILE else _require(result).stdout

    async def launch(self, command: str, *, run_id: RunId, environment: Mapping[str, str]) -> None:
        """Start the program; it goes on by itself."""
        _require(await self._run(scripts.CLEAR))
        envs = {"PYTHONUNBUFFERED": "1", **environment, **self._port, _RUN_ID_VARIABLE: str(run_id)}
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

    async def end_program(self, run_id: RunId) -> None:
        """End all its processes, also those that left their parents."""
        await self._run(scripts.end(f"{_RUN_ID_VARIABLE}={run_id}"))

    async def read_log(self, begin: int | None = None) -> Log:
        """What the program wrote from this byte on, or the last of it; a megabyte at most."""
        result = _require(await self._run(scripts.log(begin)))
        begins_at, _, encoded = result.stdout.partition("\n")
        return Log(int(begins_at), base64.b64decode(encoded))

    async def usage(self) -> Usage:
        size, processes = _require(await self._run(scripts.USAGE)).stdout.split()
        return Usage(int(size), int(processes))

    async def _run(
        self, script: str, *, envs: Mapping[str, str] | None = None, more_sec: float = 0
    ) -> CommandResult:
        from e2b import CommandExitException

        async with kit.translated(self._timeout_sec + more_sec, translation, CommandExitException):
            try:
                done = await self._sandbox.commands.run(
                    script, envs=dict(envs or {}), cwd=_HOME, timeout=0
                )
            except CommandExitException as error:
                return CommandResult(error.exit_code, error.stdout or "", error.stderr or "")
        return CommandResult(0, done.stdout, done.stderr)


def _require(result: CommandResult) -> CommandResult:
    if result.code:
        raise E2bUnavailableError(reason=f"a command ended with {result.code}: {result.stderr}")
    return result
