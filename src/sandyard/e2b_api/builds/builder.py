"""Runs the steps of a recipe in a sandbox."""

import asyncio
import codecs
import signal
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from sandyard.e2b_api.builds.recipes import (
    Step,
    Workplace,
    copy_script,
    require_kept,
    shown_script,
    variables_of,
)
from sandyard.e2b_api.envd.files import decompressed, rejoined
from sandyard.e2b_api.envd.paths import HOME, ROOT, ROOT_HOME, USER
from sandyard.e2b_api.errors import BuildFailedError
from sandyard.runtime.records.archives import ArchiveFolder
from sandyard.runtime.sessions.model import Command
from sandyard.runtime.sessions.ports import Processes, Session

Log = Callable[[str], None]

_GZIP = b"\x1f\x8b"
_READY_SEC = 30
_POLL_SEC = 0.2
_UNPACKED = "/tmp/.e2b-copy"  # noqa: S108 - inside


@dataclass(frozen=True, slots=True)
class Builder:
    """Runs steps in one running sandbox. `upload_id` returns the upload of a hash."""

    session: Session
    uploads: ArchiveFolder
    upload_id: Callable[[str], str]

    async def run(self, step: Step, at: Workplace, log: Log) -> Workplace:
        """Returns where the next step runs. Raises BuildFailedError, BuildRefusedError."""
        match step.kind:
            case "ENV":
                return await self._with_variables(variables_of(step), at)
            case "USER":
                return replace(at, user=step.arguments[0] or at.user)
            case "WORKDIR":
                return replace(at, folder=await self._make_folder(at.path(step.arguments[0]), at))
            case "RUN":
                script, user, *_ = (*step.arguments, "")
                await self._run(script, replace(at, user=user or at.user), log)
            case "COPY":
                await self._copy(step, at, log)
        return at

    async def _with_variables(self, given: Mapping[str, str], at: Workplace) -> Workplace:
        """Values may refer to earlier variables, such as `${PATH}`."""
        if any("$" in value for value in given.values()):
            lines: list[str] = []
            await self._run(shown_script(given.values()), at, lines.append)
            values = "\n".join(lines).split("\0")
            given = dict(zip(given, values, strict=False))
        return replace(at, variables={**at.variables, **given})

    async def _make_folder(self, folder: str, at: Workplace) -> str:
        """The folder belongs to the next step's user."""
        as_root = self.session.as_root(for_user=at.user == USER)
        if as_root is None:
            require_kept(folder)
        await (as_root or self.session).files.make_folder(folder)
        return folder

    async def _copy(self, step: Step, at: Workplace, log: Log) -> None:
        source, target, user, mode, *_ = (*step.arguments, "", "")
        whole = at.path(target) + ("/" if target.endswith("/") else "")
        as_root = self.session.as_root()
        if as_root is None:
            require_kept(whole)
        owner = None if as_root is None else user or at.user
        files = (as_root or self.session).files
        content = unpacked(self.uploads.read(self.upload_id(step.files_hash or "")))
        await files.write_tar(_UNPACKED, content)
        script = copy_script(source, whole, mode, unpacked=_UNPACKED, owner=owner)
        try:
            await self._run(script, replace(at, user=ROOT), log)
        finally:
            await files.remove(_UNPACKED)

    async def check_start(self, start: str, ready: str, at: Workplace, log: Log) -> None:
        """Run the start command, which each sandbox of the template will run, until it is ready.
        Raises BuildFailedError if it fails before."""
        processes, command = self._command(start, at)
        process = await processes.start(command)
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_SEC):
                while not await self._succeeds(ready, at):
                    if not (await processes.wait(process.id, timeout_sec=_POLL_SEC)).is_running:
                        break
        done = await processes.get(process.id)
        if done.exit_code:
            await _tell_output(processes, process.id, log)
            raise BuildFailedError(f"the start command ended with exit status {done.exit_code}")
        await processes.signal(process.id, signal.SIGKILL)

    async def _run(self, script: str, at: Workplace, log: Log) -> None:
        processes, command = self._command(script, at)
        process = await processes.start(command)
        await _tell_output(processes, process.id, log)
        done = await processes.wait(process.id)
        if done.exit_code:
            raise BuildFailedError(f"the command ended with exit status {done.exit_code}")

    async def _succeeds(self, script: str, at: Workplace) -> bool:
        processes, command = self._command(script, at)
        process = await processes.start(command)
        return (await processes.wait(process.id)).exit_code == 0

    def _command(self, script: str, at: Workplace) -> tuple[Processes, Command]:
        """Without root in the sandbox, root's commands run as the user."""
        as_root = self.session.as_root() if at.user == ROOT else None
        user, home = (USER, HOME) if as_root is None else (ROOT, ROOT_HOME)
        own = {"HOME": home, "USER": user, "LOGNAME": user, **at.variables}
        command = Command(("/bin/bash", "-l", "-c", script), own, folder=at.folder)
        return (as_root or self.session).processes, command


async def _tell_output(processes: Processes, process_id: str, log: Log) -> None:
    """Log its output until it ends."""
    lines = Lines(log)
    async for output in processes.output(process_id, follow=True):
        lines.feed(output.data)
    lines.end()


class Lines:
    """Splits output into lines."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + self._decoder.decode(data)).split("\n")
        for line in lines:
            self._log(line)

    def end(self) -> None:
        if self._rest:
            self._log(self._rest)


async def unpacked(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The archive, decompressed. Raises BuildFailedError."""
    first = await anext(pieces, b"")
    whole = rejoined(first, pieces)
    try:
        async for piece in decompressed(whole) if first.startswith(_GZIP) else whole:
            yield piece
    except zlib.error as error:
        raise BuildFailedError("the uploaded files are not an archive") from error
