"""`PreviewProvider` on this machine, using a runtime."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sandyard.kit.clock import utc_time
from sandyard.kit.errors import UnavailableError
from sandyard.kit.ids import holder_id
from sandyard.kit.node import require_here
from sandyard.previews import errors
from sandyard.previews.model import sync_outcome
from sandyard.previews.ports import Application, PreviewSandbox
from sandyard.previews.providers.program import LAUNCHER, STATE_BYTES, application_of
from sandyard.runtime.errors import (
    AttemptEndedError,
    FileMissingError,
    InvalidRunIdError,
    IsolationMissingError,
    NotRunningError,
    RunNotFoundError,
    SnapshotNotFoundError,
    StartFailedError,
)
from sandyard.runtime.model import (
    Ended,
    FileChanges,
    Files,
    Limits,
    Program,
    RunId,
    Running,
    RunState,
    Starting,
)
from sandyard.runtime.network_model import Network
from sandyard.runtime.ports import Runtime
from sandyard.runtime.sessions.model import Command
from sandyard.runtime.sessions.ports import PortConnection, Ports

logger = logging.getLogger(__name__)

_SITE = "site"
_STATE = "state"
_LAUNCHER = "launcher.pyz"
_LAUNCH = f'web: exec python3 -I {_LAUNCHER} 127.0.0.1 "$PORT" {_SITE} {_STATE}\n'
_START_TIMEOUT_SEC = 30.0
_POLL_SEC = 0.02
_INSTALL_POLL_SEC = 0.25
_CLEAR = (
    f"cd {_SITE} && find . -mindepth 1 -maxdepth 1 ! -name node_modules ! -name package-lock.json "
    f"-exec rm -rf {{}} + ; rm -f ../{_STATE}/state.json"
)
"""Of what is kept of a project's last preview, leaves packages alone; a lock file was written with
them, if the project has none."""
_PACKAGES = "packages-"
_ON_NODE = "_"
"""Separates an attempt's unique part from its node."""


@dataclass(slots=True, eq=False)
class LocalPreviewProvider:
    """`PreviewProvider` on this machine. A sandbox's id consists of its project's and its
    attempt's, and an attempt's names its node; an older one without a node is looked up here.

    `clear_ended` removes the data of sandboxes that ended by themselves.
    """

    runtime: Runtime
    limits: Limits
    node: str
    url_of: Callable[[Running], str]
    network: Network
    hosts: str
    """The hosts of previews, for development servers that check them: `.example.com`."""
    install_sec: float = 600
    """The time that an installation may take."""
    packages_bytes: int = 8 << 30
    """Of the packages of all projects, at most."""
    _savings: dict[RunId, "asyncio.Task[None]"] = field(default_factory=dict, init=False)

    def make_attempt_id(self) -> str:
        return f"{holder_id()}{_ON_NODE}{self.node}"

    async def create(
        self, *, project_id: str, attempt: str, files: Mapping[str, bytes], ttl: timedelta
    ) -> PreviewSandbox:
        run_id = self._here(RunId("preview", project_id, attempt))
        limits = replace(self.limits, max_running_sec=ttl.total_seconds())
        with _translated():
            try:
                await self.runtime.check()
                running = await self._start(run_id, self._program(files), limits)
                self._keep_packages(run_id)
                return self._sandbox(running)
            except AttemptEndedError as error:
                raise errors.SandboxGoneError from error
            except StartFailedError as error:
                await self._clear(run_id)
                raise errors.ProviderCanNotStartError(reason=f"{error.code}: {error}") from error
            except IsolationMissingError as error:
                raise errors.ProviderCanNotStartError(error.message) from error

    async def find_attempt(self, *, project_id: str, attempt: str) -> PreviewSandbox | None:
        try:
            run_id = self._run_id(f"{project_id}.{attempt}")
        except errors.SandboxGoneError:
            return None
        run = await self._started_run(run_id)
        if isinstance(run, Ended):
            raise errors.SandboxGoneError(reason=run.message)
        return self._sandbox(run) if isinstance(run, Running) else None

    async def get(self, sandbox_id: str) -> PreviewSandbox:
        return self._sandbox(await self._get_running(self._run_id(sandbox_id)))

    async def ports(self, sandbox_id: str) -> Ports:
        with _translated():
            return (await self.runtime.session(self._run_id(sandbox_id))).ports

    async def connect(self, sandbox_id: str) -> PortConnection:
        """To the preview's page."""
        running = await self._get_running(self._run_id(sandbox_id))
        return await (await self.ports(sandbox_id)).connect(running.port)

    async def end_time(self, sandbox_id: str) -> datetime:
        return utc_time((await self._get_running(self._run_id(sandbox_id))).deadline_at)

    async def write_files(
        self, sandbox_id: str, *, written: Mapping[str, bytes], deleted: Collection[str]
    ) -> None:
        run_id = self._run_id(sandbox_id)
        running = await self._get_running(run_id)
        changes = FileChanges(
            written=_under_site(written), deleted=frozenset(f"{_SITE}/{path}" for path in deleted)
        )
        with _translated():
            await self.runtime.write_files(run_id, changes)
            if running.program is not None and running.program.is_over:  # its create broke off
                await self.runtime.start_program(run_id, self._program({}))
        if sync_outcome(written, deleted) == "installed":
            self._keep_packages(run_id)

    async def kill(self, sandbox_id: str) -> None:
        try:
            run_id = self._run_id(sandbox_id)
        except errors.SandboxGoneError:
            return
        with _translated():
            await self._clear(run_id)

    async def close(self) -> None:
        """The runtime's supervisors keep running."""
        for saving in self._savings.values():
            saving.cancel()
        await asyncio.gather(*self._savings.values(), return_exceptions=True)

    async def clear_ended(self) -> int:
        """Remove the data of ended previews; returns how many. For a job, every few minutes."""
        with _translated():
            runs = await self.runtime.list_runs("preview")
            ended = [each for each in runs if isinstance(each, Ended)]
            for each in ended:
                await self._clear(each.run_id)
        return len(ended)

    async def running(self) -> Sequence[PreviewSandbox]:
        with _translated():
            runs = await self.runtime.list_runs("preview")
        return [self._sandbox(each) for each in runs if isinstance(each, Running)]

    async def application(self, sandbox_id: str) -> Application | None:
        with _translated():
            session = await self.runtime.session(self._run_id(sandbox_id))
            try:
                found = session.files.read(f"{_STATE}/state.json", limit=STATE_BYTES)
                content = b"".join([piece async for piece in found])
            except FileMissingError:
                return None
        return application_of(content)

    async def log(self, sandbox_id: str, *, lines: int) -> Sequence[str]:
        with _translated():
            return await self.runtime.tail_logs(self._run_id(sandbox_id), lines=lines)

    async def follow_log(self, sandbox_id: str, *, lines: int) -> AsyncIterator[str]:
        written = self.runtime.follow_logs(self._run_id(sandbox_id), lines=lines)
        async with aclosing(written):  # type: ignore[type-var]
            with _translated():
                async for line in written:
                    yield line

    async def _start(self, run_id: RunId, program: Program, limits: Limits) -> Running:
        """With the packages of the project's last preview, if they are kept; the launcher installs
        what differs."""
        archive_id = _packages_of(run_id)
        warm = replace(program, archive_id=archive_id, is_launched=False)
        try:
            await self.runtime.start(run_id, warm, limits)
        except SnapshotNotFoundError:
            return await self.runtime.start(run_id, program, limits)
        session = await self.runtime.session(run_id)
        async with aclosing(session.processes.run(Command(("/bin/sh", "-c", _CLEAR)))) as clearing:
            async for _ in clearing:
                pass
        if isinstance(program.source, Files):
            await self.runtime.write_files(run_id, FileChanges(program.source.contents))
        return await self.runtime.start_program(run_id, program)

    def _keep_packages(self, run_id: RunId) -> None:
        """For the project's next preview, once they are installed."""
        if (saving := self._savings.get(run_id)) is not None:
            saving.cancel()
        self._savings[run_id] = saving = asyncio.create_task(self._save_packages(run_id))
        saving.add_done_callback(lambda done: self._saved(run_id, done))

    async def _save_packages(self, run_id: RunId) -> None:
        has_installed, until = False, time.monotonic() + 2 * self.install_sec
        while time.monotonic() < until:
            found = await self.application(_sandbox_id(run_id))
            has_installed |= found is not None and found.phase == "installing"
            if found is not None and found.phase in ("running", "failed"):
                break
            await asyncio.sleep(_INSTALL_POLL_SEC)
        if has_installed and found is not None and found.phase == "running":
            await self.runtime.save_archive(run_id, _packages_of(run_id))
            await self._remove_packages()

    async def _remove_packages(self) -> None:
        """Those that were not used for the longest, beyond the limit: no account pays for them."""
        archives = await self.runtime.list_archives()
        kept = [each for each in archives if each.id.startswith(_PACKAGES)]
        size = sum(each.size_bytes for each in kept)
        for each in sorted(kept, key=lambda each: each.created_at):
            if size <= self.packages_bytes:
                return
            await self.runtime.delete_archive(each.id)
            size -= each.size_bytes

    def _saved(self, run_id: RunId, saving: "asyncio.Task[None]") -> None:
        if self._savings.get(run_id) is saving:
            del self._savings[run_id]
        if not saving.cancelled() and (error := saving.exception()) is not None:
            extra = {"action": "previews", "project_id": run_id.id, "reason": str(error)}
            logger.warning("a preview's packages were not kept", extra=extra)

    def _program(self, files: Mapping[str, bytes]) -> Program:
        """The site is a folder beside the launcher, so that a project's own Procfile is read by the
        launcher alone."""
        own = {"Procfile": _LAUNCH.encode(), _LAUNCHER: LAUNCHER}
        return Program(
            Files(own | _under_site(files)),
            policy="ends_machine",
            network=self.network,
            environment={
                "PREVIEW_HOSTS": self.hosts,
                "PREVIEW_INSTALL_SEC": str(self.install_sec),
            },
        )

    def _sandbox(self, running: Running) -> PreviewSandbox:
        return PreviewSandbox(
            sandbox_id=_sandbox_id(running.run_id),
            preview_url=self.url_of(running),
            start_time=utc_time(running.started_at),
            end_time=utc_time(running.deadline_at),
            attempt=running.run_id.attempt,
        )

    def _run_id(self, sandbox_id: str) -> RunId:
        """An id of another format belongs to another provider's sandbox, which does not exist
        here."""
        try:
            project_id, attempt = sandbox_id.split(".")
            run_id = RunId("preview", project_id, attempt)
        except (ValueError, InvalidRunIdError) as error:
            raise errors.SandboxGoneError from error
        return self._here(run_id)

    def _here(self, run_id: RunId) -> RunId:
        _, _, node = run_id.attempt.partition(_ON_NODE)
        require_here(node or None, node=self.node, error=errors.PreviewElsewhereError)
        return run_id

    async def _get_running(self, run_id: RunId) -> Running:
        run = await self._started_run(run_id)
        if isinstance(run, Running):
            return run
        raise errors.SandboxGoneError(reason=run.message if isinstance(run, Ended) else "")

    async def _started_run(self, run_id: RunId) -> RunState | None:
        """Waits for one that is starting: the process that started it may be dead."""
        until = time.monotonic() + _START_TIMEOUT_SEC
        with _translated():
            while isinstance(run := await self.runtime.refresh(run_id), Starting):
                if time.monotonic() > until:
                    raise errors.ProviderTimeoutError(reason=f"{run_id} is still starting")
                await asyncio.sleep(_POLL_SEC)
        return run

    async def _clear(self, run_id: RunId) -> None:
        """Stop it and delete its data; concurrent calls are fine."""
        try:
            ended = await self.runtime.stop(run_id)
            if ended.snapshot is not None:
                await self.runtime.delete_snapshot(ended.snapshot.id)
            await self.runtime.forget(run_id)
        except RunNotFoundError:
            return


@contextmanager
def _translated() -> Iterator[None]:
    """Translates the runtime's errors to a provider's: unavailable, or gone if it no longer
    runs."""
    try:
        yield
    except (RunNotFoundError, NotRunningError) as error:
        raise errors.SandboxGoneError from error
    except errors.ProviderTroubleError:
        raise
    except UnavailableError as error:
        raise errors.ProviderTroubleError(
            error.message, retry_after=error.retry_after, reason=error.reason
        ) from error


def _under_site(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{_SITE}/{path}": content for path, content in files.items()}


def _packages_of(run_id: RunId) -> str:
    """The archive of a project's packages. Nothing refers to it, so it is removed an hour after its
    last use."""
    return f"{_PACKAGES}{run_id.id}"


def _sandbox_id(run_id: RunId) -> str:
    return f"{run_id.id}.{run_id.attempt}"
