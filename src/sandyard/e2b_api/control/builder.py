"""Runs the steps of a recipe in a sandbox."""

import codecs
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from sandyard.e2b_api.control.recipes import (
    Step,
    Workplace,
    copy_script,
    require_kept,
    variables_of,
)
from sandyard.e2b_api.errors import BuildFailedError
from sandyard.runtime.archives import ArchiveFolder
from sandyard.runtime.session_model import Command
from sandyard.runtime.session_ports import Session

Log = Callable[[str], None]

_GZIP = b"\x1f\x8b"
_PIECE_BYTES = 1 << 20
_UNPACKED = "/tmp/.e2b-copy"  # noqa: S108 - inside


@dataclass(frozen=True, slots=True)
class Builder:
    """In one running sandbox. `upload_id` names the upload of a hash."""

    session: Session
    uploads: ArchiveFolder
    upload_id: Callable[[str], str]

    async def run(self, step: Step, at: Workplace, log: Log) -> Workplace:
        """Where the next step runs. Raises BuildFailedError, BuildRefusedError."""
        match step.kind:
            case "ENV":
                return replace(at, variables={**at.variables, **variables_of(step)})
            case "WORKDIR":
                folder = at.path(step.arguments[0])
                require_kept(folder)
                await self.session.files.make_folder(folder)
                return replace(at, folder=folder)
            case "RUN":
                await self._run(step.arguments[0], at, log)
            case "COPY":
                await self._copy(step, at, log)
        return at

    async def _copy(self, step: Step, at: Workplace, log: Log) -> None:
        source, target, _user, mode, *_ = (*step.arguments, "", "")
        whole = at.path(target) + ("/" if target.endswith("/") else "")
        require_kept(whole)
        content = unpacked(self.uploads.read(self.upload_id(step.files_hash or "")))
        await self.session.files.write_tar(_UNPACKED, content)
        try:
            await self._run(copy_script(source, whole, mode, unpacked=_UNPACKED), at, log)
        finally:
            await self.session.files.remove(_UNPACKED)

    async def _run(self, script: str, at: Workplace, log: Log) -> None:
        processes = self.session.processes
        own = {"HOME": "/home/user", "USER": "user", "LOGNAME": "user"}
        process = await processes.start(
            Command(("/bin/bash", "-l", "-c", script), {**own, **at.variables}, folder=at.folder)
        )
        lines = Lines(log)
        async for output in processes.output(process.id, follow=True):
            lines.feed(output.data)
        lines.end()
        done = await processes.wait(process.id)
        if done.exit_code:
            raise BuildFailedError(f"the command ended with exit status {done.exit_code}")


class Lines:
    """Pieces of output, told line by line."""

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
    """The archive without its compression. Raises BuildFailedError."""
    first = await anext(pieces, b"")
    if not first.startswith(_GZIP):
        yield first
        async for piece in pieces:
            yield piece
        return
    unpacking = zlib.decompressobj(wbits=31)
    try:
        while first:
            while first:
                yield unpacking.decompress(first, _PIECE_BYTES)
                first = unpacking.unconsumed_tail
            first = await anext(pieces, b"")
    except zlib.error as error:
        raise BuildFailedError("the uploaded files are no archive") from error
