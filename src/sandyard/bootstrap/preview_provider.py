"""Previews on the Platform's runtime: the port of the one, served by the other."""

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from sandyard.kit.clock import Clock, SystemClock, utc_time
from sandyard.kit.errors import UnavailableError
from sandyard.platform.runtime.errors import (
    AttemptEndedError,
    InvalidOwnerError,
    IsolationMissingError,
    NotHeldError,
    NotRunningError,
    StartFailedError,
)
from sandyard.platform.runtime.model import (
    Ended,
    FileChanges,
    Files,
    Held,
    Limits,
    Owner,
    Program,
    Running,
    Starting,
)
from sandyard.platform.runtime.ports import Runtime
from sandyard.previews.providers.errors import (
    ProviderCanNotStartError,
    ProviderTimeoutError,
    ProviderTroubleError,
    SandboxGoneError,
)
from sandyard.previews.providers.ports import PreviewSandbox
from sandyard.previews.providers.site_server import SITE_SERVER

_SITE = "site"
_SERVER = "server.py"
_SERVE_SITE = f'web: exec python3 -I {_SERVER} 127.0.0.1 "$PORT" {_SITE}\n'
_LOOK_SEC = 0.02


class LocalPreviewProvider:
    """`PreviewProvider` on this machine. A sandbox's id is its project's and its attempt's.

    The project's files are served as they are, and none of them is run. What is kept of those
    that ended by themselves is dropped by `clear_ended`.
    """

    def __init__(
        self,
        runtime: Runtime,
        limits: Limits,
        *,
        clock: Clock | None = None,
        start_timeout_sec: float = 30,
    ) -> None:
        self._runtime = runtime
        self._limits = limits
        self._clock = clock or SystemClock()
        self._start_timeout_sec = start_timeout_sec

    async def create(
        self, *, project_id: str, attempt: str, files: Mapping[str, bytes], ttl: timedelta
    ) -> PreviewSandbox:
        owner = Owner("preview", project_id, attempt)
        limits = replace(self._limits, max_running_sec=ttl.total_seconds())
        with _translated():
            try:
                return _known(await self._runtime.start(owner, _program(files), limits))
            except AttemptEndedError as error:
                raise SandboxGoneError from error
            except StartFailedError as error:
                await self._clear(owner)
                raise ProviderCanNotStartError(reason=f"{error.code}: {error}") from error
            except IsolationMissingError as error:
                raise ProviderCanNotStartError(error.message) from error

    async def find_attempt(self, *, project_id: str, attempt: str) -> PreviewSandbox | None:
        try:
            return await self.get(_id(Owner("preview", project_id, attempt)))
        except SandboxGoneError:
            return None

    async def get(self, sandbox_id: str) -> PreviewSandbox:
        return _known(await self._get_running(_owner(sandbox_id)))

    async def end_time(self, sandbox_id: str) -> datetime:
        return utc_time((await self._get_running(_owner(sandbox_id))).deadline_at)

    async def write_files(
        self, sandbox_id: str, *, written: Mapping[str, bytes], deleted: Collection[str]
    ) -> None:
        owner = _owner(sandbox_id)
        await self._get_running(owner)
        changes = FileChanges(
            written=_placed(written), deleted=frozenset(f"{_SITE}/{path}" for path in deleted)
        )
        with _translated():
            await self._runtime.write_files(owner, changes)

    async def extend(self, sandbox_id: str, *, ttl: timedelta) -> None:
        owner = _owner(sandbox_id)
        await self._get_running(owner)
        with _translated():
            deadline_at = self._clock.now() + ttl.total_seconds()
            await self._runtime.extend(owner, deadline_at=deadline_at)

    async def kill(self, sandbox_id: str) -> None:
        try:
            owner = _owner(sandbox_id)
        except SandboxGoneError:
            return
        with _translated():
            await self._clear(owner)

    async def close(self) -> None:
        """Nothing is held here; the runtime's supervisors go on."""

    async def clear_ended(self) -> int:
        """Drop what is kept of previews that have ended; how many. For a job, every few minutes."""
        with _translated():
            held = await self._runtime.list_held("preview")
            ended = [each for each in held if isinstance(each, Ended)]
            for each in ended:
                await self._clear(each.owner)
        return len(ended)

    async def running(self) -> Sequence[PreviewSandbox]:
        with _translated():
            held = await self._runtime.list_held("preview")
        return [_known(each) for each in held if isinstance(each, Running)]

    async def _get_running(self, owner: Owner) -> Running:
        """One that is starting is waited for: whoever started it may be dead."""
        until = time.monotonic() + self._start_timeout_sec
        while isinstance(held := await self._find(owner), Starting):
            if time.monotonic() > until:
                raise ProviderTimeoutError(reason=f"{owner} is still starting")
            await asyncio.sleep(_LOOK_SEC)
        if isinstance(held, Running):
            return held
        raise SandboxGoneError

    async def _find(self, owner: Owner) -> Held | None:
        with _translated():
            return await self._runtime.find(owner)

    async def _clear(self, owner: Owner) -> None:
        """Stop it and keep nothing, whoever else is doing the same."""
        try:
            ended = await self._runtime.stop(owner)
            if ended.snapshot is not None:
                await self._runtime.delete_snapshot(ended.snapshot.id)
            await self._runtime.forget(owner)
        except NotHeldError:
            return


@contextmanager
def _translated() -> Iterator[None]:
    """The runtime's trouble as a provider's, and what does not run any more as gone."""
    try:
        yield
    except (NotHeldError, NotRunningError) as error:
        raise SandboxGoneError from error
    except ProviderTroubleError:
        raise
    except UnavailableError as error:
        raise ProviderTroubleError(
            error.message, retry_after=error.retry_after, reason=error.reason
        ) from error
    except OSError as error:
        raise ProviderTroubleError(reason=str(error)) from error


def _program(files: Mapping[str, bytes]) -> Program:
    """The site lies beside the Procfile, so that a project's own Procfile is just one file."""
    own = {"Procfile": _SERVE_SITE.encode(), _SERVER: SITE_SERVER.encode()}
    return Program(Files(own | _placed(files)))


def _placed(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{_SITE}/{path}": content for path, content in files.items()}


def _id(owner: Owner) -> str:
    return f"{owner.id}.{owner.attempt}"


def _owner(sandbox_id: str) -> Owner:
    """Of another provider's sandboxes this one has none."""
    try:
        project_id, attempt = sandbox_id.split(".")
        return Owner("preview", project_id, attempt)
    except (ValueError, InvalidOwnerError) as error:
        raise SandboxGoneError from error


def _known(running: Running) -> PreviewSandbox:
    return PreviewSandbox(
        sandbox_id=_id(running.owner),
        preview_url=running.url,
        start_time=utc_time(running.started_at),
        end_time=utc_time(running.deadline_at),
        attempt=running.owner.attempt,
    )
