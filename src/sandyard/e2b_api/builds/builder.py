"""Runs the steps of a recipe in a sandbox."""

import asyncio
import signal
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

from sandyard.e2b_api.builds import recipes
from sandyard.e2b_api.builds.recipes import Step
from sandyard.e2b_api.builds.records import LONGEST_LINE
from sandyard.e2b_api.envd.files import decompressed, rejoined
from sandyard.e2b_api.envd.paths import ROOT, USER
from sandyard.e2b_api.errors import BuildFailedError
from sandyard.e2b_api.sandboxes.launcher import Workplace
from sandyard.kit.lines import LineReader
from sandyard.runtime.sessions.ports import Processes, Session
from sandyard.runtime.store.archives import ArchiveFolder

Log = Callable[[str], bool]
"""Takes a line; returns whether it takes more."""

_GZIP = b"\x1f\x8b"
_MOST_BYTES = 64 * 1024
_READY_SEC = 30
_POLL_SEC = 0.2
_UNPACKED = "/tmp/.e2b-copy"  # noqa: S108 - inside


@dataclass(frozen=True, slots=True)
class Builder:
    """Runs steps in one running sandbox. `upload_id` returns the upload of a hash."""

    session: Session
    uploads: ArchiveFolder
    upload_id: Callable[[str], str]
    log: Log

    async def run(self, step: Step, at: Workplace) -> Workplace:
        """Returns where the next step runs. Raises BuildFailedError, BuildRefusedError."""
        self.log(step.description)
        match step.kind:
            case "ENV":
                return await self._with_variables(recipes.variables_of(step), at)
            case "USER":
                return replace(at, user=step.arguments[0] or at.user)
            case "WORKDIR":
                return replace(at, folder=await self._make_folder(at.path(step.arguments[0]), at))
            case "RUN":
                script, user, *_ = (*step.arguments, "")
                await self._run(script, replace(at, user=user or at.user))
            case "COPY":
                await self._copy(step, at)
        return at

    async def _with_variables(self, given: Mapping[str, str], at: Workplace) -> Workplace:
        """Values may refer to earlier variables, such as `${PATH}`."""
        if any("$" in value for value in given.values()):
            values = (await self._output(recipes.shown_script(given.values()), at)).split("\0")
            given = dict(zip(given, values, strict=False))
        return replace(at, variables={**at.variables, **given})

    async def _make_folder(self, folder: str, at: Workplace) -> str:
        """The folder belongs to the next step's user."""
        as_root = self.session.as_root(for_user=at.user == USER)
        if as_root is None:
            recipes.require_kept(folder)
        await (as_root or self.session).files.make_folder(folder)
        return folder

    async def _copy(self, step: Step, at: Workplace) -> None:
        source, target, user, mode, *_ = (*step.arguments, "", "")
        whole = at.path(target) + ("/" if target.endswith("/") else "")
        as_root = self.session.as_root()
        if as_root is None:
            recipes.require_kept(whole)
        owner = None if as_root is None else user or at.user
        files = (as_root or self.session).files
        content = unpacked(self.uploads.read(self.upload_id(step.files_hash or "")))
        await files.write_tar(_UNPACKED, content)
        script = recipes.copy_script(source, whole, mode, unpacked=_UNPACKED, owner=owner)
        try:
            await self._run(script, replace(at, user=ROOT))
        finally:
            await files.remove(_UNPACKED)

    async def check_start(self, start: str, ready: str, at: Workplace) -> None:
        """Run the start command, which each sandbox of the template will run, until it is ready.
        Raises BuildFailedError if it fails before."""
        self.log(f"START {start}")
        processes, process = await at.start(self.session, start)
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_SEC):
                while not await at.succeeds(self.session, ready):
                    if not (await processes.wait(process.id, timeout_sec=_POLL_SEC)).is_running:
                        break
        done = await processes.get(process.id)
        if done.exit_code:
            await _tell_output(processes, process.id, self.log)
            raise BuildFailedError(f"the start command ended with exit status {done.exit_code}")
        await processes.signal(process.id, signal.SIGKILL)

    async def _run(self, script: str, at: Workplace) -> None:
        processes, process = await at.start(self.session, script)
        await _tell_output(processes, process.id, self.log)
        await _require_success(processes, process.id)

    async def _output(self, script: str, at: Workplace) -> str:
        processes, process = await at.start(self.session, script)
        found = bytearray()
        async for output in processes.output(process.id, follow=True):
            found += output.data
            if len(found) > _MOST_BYTES:
                raise BuildFailedError(f"the variables have more than {_MOST_BYTES} bytes")
        await _require_success(processes, process.id)
        return found.decode(errors="replace")


async def _require_success(processes: Processes, process_id: str) -> None:
    done = await processes.wait(process_id)
    if done.exit_code:
        raise BuildFailedError(f"the command ended with exit status {done.exit_code}")


async def _tell_output(processes: Processes, process_id: str, log: Log) -> None:
    """Log its output until it ends, or the log takes no more."""
    lines = LineReader(LONGEST_LINE)
    async with aclosing(processes.output(process_id, follow=True)) as outputs:
        async for output in outputs:
            if not _log_all(lines.feed(output.data), log):
                return
    _log_all(lines.end(), log)


def _log_all(lines: Sequence[bytes], log: Log) -> bool:
    return all(log(line.decode(errors="replace")) for line in lines)


async def unpacked(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The archive, decompressed. Raises BuildFailedError."""
    first = await anext(pieces, b"")
    whole = rejoined(first, pieces)
    try:
        async for piece in decompressed(whole) if first.startswith(_GZIP) else whole:
            yield piece
    except zlib.error as error:
        raise BuildFailedError("the uploaded files are not an archive") from error
