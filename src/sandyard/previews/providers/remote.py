"""`ports.PreviewProvider` on machines elsewhere, through their envd."""

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandyard.kit.concurrency.tasks import for_each
from sandyard.kit.errors import SandyardError
from sandyard.kit.ids import holder_id
from sandyard.kit.lines import LineReader
from sandyard.previews import errors
from sandyard.previews.ports import Application, PreviewSandbox
from sandyard.previews.providers.program import LAUNCHER, STATE_BYTES, application_of
from sandyard.runtime.model import LOG_LINE_BYTES, last_lines, log_line
from sandyard.runtime.remote.envd import Envd
from sandyard.runtime.remote.errors import CallError, Trouble
from sandyard.runtime.remote.http import repeated
from sandyard.runtime.remote.machines import MachineAccess, MachineInfo, RemoteMachines
from sandyard.runtime.remote.session import run

SITE = "/home/user/preview"
"""The folder inside a machine that holds the project's files and is served."""
_STATE = "/home/user/.preview"
"""The folder of the launcher, its state and its log."""
REPEATS = 2
"""How often a call is repeated after a 429 or 5xx, if it is idempotent."""

_MACHINE_ID = re.compile(r"[A-Za-z0-9-]{1,128}")
_KIND = "preview"
_DELETIONS_AT_ONCE = 8
_FOLLOW_SEC = 2.0


@dataclass(slots=True, eq=False)
class RemotePreviewProvider:
    """Each machine runs the launcher with the template's python3. A template that already listens
    on the port must serve `SITE` there.

    Any server finds a preview by its metadata, whichever server created it.
    """

    machines: RemoteMachines
    """Raises failed calls as `translation` says."""
    template: str
    port: int
    scheme: str
    files_sec: float
    """The time to update the files of a preview."""
    hosts: str
    """The hosts of machines, for development servers that check them: `.e2b.app`."""
    install_sec: float = 600
    """The time that an installation may take."""

    def make_attempt_id(self) -> str:
        return holder_id()

    async def create(
        self, *, project_id: str, attempt: str, files: Mapping[str, bytes], ttl: timedelta
    ) -> PreviewSandbox:
        access = await self.machines.create(
            self.template,
            lifetime_sec=ttl.total_seconds(),
            metadata=_metadata(project_id, attempt),
            pauses=False,
        )
        try:
            await self._update(access, files, ())
            return await self.get(access.machine_id)
        except errors.ProviderTroubleError as error:
            error.made_nothing = False  # whatever failed here, the machine exists
            raise

    async def find_attempt(self, *, project_id: str, attempt: str) -> PreviewSandbox | None:
        """A list does not include a machine's address, so it is requested separately."""
        for found in await self.machines.list_by_metadata(_metadata(project_id, attempt)):
            try:
                return await self.get(found.machine_id)
            except errors.SandboxGoneError:
                continue
        return None

    async def get(self, sandbox_id: str) -> PreviewSandbox:
        _check_id(sandbox_id)
        return self._sandbox(await self.machines.get(sandbox_id))

    async def end_time(self, sandbox_id: str) -> datetime:
        _check_id(sandbox_id)
        return await self.machines.end_time(sandbox_id)

    async def write_files(
        self, sandbox_id: str, *, written: Mapping[str, bytes], deleted: Collection[str]
    ) -> None:
        _check_id(sandbox_id)
        await self._update(await self.machines.connect(sandbox_id), written, deleted)

    async def application(self, sandbox_id: str) -> Application | None:
        found = await self._read(sandbox_id, f"{_STATE}/state.json")
        return None if found is None else application_of(found[1])

    async def log(self, sandbox_id: str, *, lines: int) -> Sequence[str]:
        _, content = await self._read(sandbox_id, f"{_STATE}/log") or (0, b"")
        return last_lines(content, lines)

    async def follow_log(self, sandbox_id: str, *, lines: int) -> AsyncIterator[str]:
        seen, reader = None, LineReader(LOG_LINE_BYTES)
        while True:
            size, content = await self._read(sandbox_id, f"{_STATE}/log") or (0, b"")
            new = content if seen is None else content[max(0, len(content) - size + seen) :]
            found = reader.feed(new)
            for line in found[-lines:] if seen is None else found:
                yield log_line(line)
            seen = size
            await asyncio.sleep(_FOLLOW_SEC)

    async def kill(self, sandbox_id: str) -> None:
        try:
            _check_id(sandbox_id)
        except errors.SandboxGoneError:
            return
        await self.machines.kill(sandbox_id)

    async def close(self) -> None:
        await self.machines.close()

    def _sandbox(self, info: MachineInfo) -> PreviewSandbox:
        return PreviewSandbox(
            sandbox_id=info.machine_id,
            preview_url=f"{self.scheme}://{info.host(self.port)}",
            start_time=info.started_at,
            end_time=info.end_at,
            attempt=info.metadata.get("attempt", ""),
        )

    async def _update(
        self, access: MachineAccess, written: Mapping[str, bytes], deleted: Collection[str]
    ) -> None:
        """Update the files, and serve them."""
        envd = self.machines.envd(access)

        async def update() -> None:
            try:
                async with asyncio.timeout(self.files_sec):
                    await _delete(envd, in_the_way(written, deleted))
                    sent = {f"{SITE}/{path}": content for path, content in written.items()}
                    await envd.upload(sent, within_sec=self.files_sec)
                    await self._serve(envd)
            except TimeoutError as error:
                raise CallError("timeout", "the files were not written in time") from error

        try:
            await repeated(update, repeats=REPEATS)
        except CallError as error:
            if error.trouble == "unreachable":  # only the service knows whether it is gone
                await self.get(access.machine_id)
            raise translation(error) from error

    async def _read(self, sandbox_id: str, path: str) -> tuple[int, bytes] | None:
        """The size of a file, and its end; None if there is none."""
        _check_id(sandbox_id)
        envd = self.machines.envd(await self.machines.connect(sandbox_id))
        size, found = 0, b""
        try:
            async with aclosing(envd.download(path, within_sec=self.files_sec)) as pieces:
                async for piece in pieces:
                    size += len(piece)
                    found = (found + piece)[-STATE_BYTES:]
        except CallError as error:
            if error.trouble == "not_found":
                return None
            raise translation(error) from error
        return size, found

    async def _serve(self, envd: Envd) -> None:
        """Start the launcher and return when it, or what the template has, listens.

        If something already listens, the launcher finds its port taken and exits.
        """
        port, launcher = self.port, f"{_STATE}/launcher.pyz"
        await envd.upload({launcher: LAUNCHER}, within_sec=self.files_sec)
        chosen = f"PREVIEW_HOSTS={shlex.quote(self.hosts)} PREVIEW_INSTALL_SEC={self.install_sec}"
        arguments = f"0.0.0.0 {port} {shlex.quote(SITE)} {_STATE}"
        server = f"{chosen} exec python3 -I {launcher} {arguments} >>{_STATE}/log 2>&1"
        start = {"process": _shell(server)}
        async with aclosing(envd.stream("process.Process/Start", start)) as events:
            await anext(events)  # it goes on by itself
        listens = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null"
        await run(envd, _shell(f"until {listens}; do sleep 0.1; done"))


def in_the_way(written: Mapping[str, bytes], deleted: Collection[str]) -> set[str]:
    """The paths to delete, and the emptied folders that a written file replaces."""
    folders = {
        path[:end]
        for path in deleted
        for end, character in enumerate(path)
        if character == "/" and path[:end] in written
    }
    return folders | set(deleted)


_TROUBLES: Mapping[Trouble, type[errors.ProviderTroubleError]] = {
    "key_refused": errors.ProviderKeyRefusedError,
    "failed": errors.ProviderFailedError,
    "unreachable": errors.ProviderUnreachableError,
    "timeout": errors.ProviderTimeoutError,
    "rate_limited": errors.ProviderRateLimitedError,
}


def translation(error: CallError) -> SandyardError:
    if error.trouble == "gone":
        return errors.SandboxGoneError()
    kind = _TROUBLES.get(error.trouble, errors.ProviderTroubleError)
    retry_after = error.retry_after if error.trouble == "rate_limited" else None
    ours = kind(retry_after=retry_after, reason=error.reason)
    if not error.was_sent:
        ours.made_nothing = True
    return ours


async def _delete(envd: Envd, paths: Collection[str]) -> None:
    async def delete(path: str) -> None:
        try:
            target = {"path": f"{SITE}/{path}"}
            await envd.call("filesystem.Filesystem/Remove", target, within_sec=None)
        except CallError as error:
            if error.code != "not_found":
                raise

    await for_each(sorted(paths), delete, slots=asyncio.Semaphore(_DELETIONS_AT_ONCE))


def _shell(script: str) -> dict[str, object]:
    return {"cmd": "/bin/bash", "args": ["-l", "-c", script]}


def _metadata(project_id: str, attempt: str) -> dict[str, str]:
    return {"kind": _KIND, "project_id": project_id, "attempt": attempt}


def _check_id(sandbox_id: str) -> None:
    """An id of another format belongs to another provider's machine, which is not there."""
    if not _MACHINE_ID.fullmatch(sandbox_id):
        raise errors.SandboxGoneError
