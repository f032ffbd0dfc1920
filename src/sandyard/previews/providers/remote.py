"""`ports.PreviewProvider` on E2B, using its SDK.

The SDK is the extra `e2b`. It is imported when a provider is created, because that is slow.
"""

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, TypeVar

from sandyard.kit.concurrency.parallel import for_each
from sandyard.kit.errors import SandyardError
from sandyard.kit.ids import holder_id
from sandyard.previews.providers.errors import (
    ProviderFailedError,
    ProviderKeyRefusedError,
    ProviderMissingError,
    ProviderRateLimitedError,
    ProviderTimeoutError,
    ProviderTroubleError,
    ProviderUnreachableError,
    SandboxGoneError,
)
from sandyard.previews.providers.ports import PreviewSandbox
from sandyard.previews.providers.site_server import SITE_SERVER
from sandyard.runtime.e2b.end_times import EndTimes
from sandyard.runtime.remote import sdk as kit
from sandyard.runtime.remote.backoff import BackingOffError, Backoff, SandboxBackoffs

if TYPE_CHECKING:
    from e2b import AsyncSandbox, SandboxInfo

SITE = "/home/user/preview"
"""The folder inside a sandbox that holds the project's files and is served."""

_SANDBOX_ID = re.compile(r"[A-Za-z0-9-]{1,128}")
_KIND = "preview"
_PAGE = 100
_DELETIONS_AT_ONCE = 8
_REPEATS = 2
_GATHER_SEC = 0.005

T = TypeVar("T")
_Asking = Callable[[], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class E2bTimeouts:
    """Timeouts for a request, for creating a sandbox, and for updating its files.

    A create does all three, one after the other.
    """

    request_sec: float = 10
    create_sec: float = 60
    files_sec: float = 60


class E2bProvider:
    """Each sandbox serves its folder with Python's own web server, which `base` includes.

    A template that already listens on the port must serve `SITE` there.
    """

    def __init__(
        self,
        api_key: str,
        *,
        api_url: str | None = None,
        sandbox_url: str | None = None,
        template: str = "base",
        port: int = 8080,
        timeouts: E2bTimeouts | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """Without URLs, E2B's own are used. Raises ProviderMissingError without the SDK."""
        try:
            self._sandboxes = kit.open_sandboxes(api_key, api_url=api_url, sandbox_url=sandbox_url)
        except ImportError as error:
            raise ProviderMissingError from error
        self._timeouts = timeouts or E2bTimeouts()
        self._backoff = backoff or Backoff()
        self._backoffs = SandboxBackoffs(self._backoff)
        self._end_times = EndTimes(self._ask_end_time, self._list_end_times, gather_sec=_GATHER_SEC)
        self._template = template
        self._port = port
        self._scheme = "http" if (sandbox_url or "").startswith("http://") else "https"

    def make_attempt_id(self) -> str:
        return holder_id()

    async def create(
        self, *, project_id: str, attempt: str, files: Mapping[str, bytes], ttl: timedelta
    ) -> PreviewSandbox:
        async with kit.translated(self._timeouts.request_sec, translation):
            await self._backoff.wait(within_sec=self._timeouts.request_sec)
        async with self._asking(self._timeouts.create_sec):
            sandbox = await self._sandboxes.create(
                self._template, timeout=_seconds(ttl), metadata=_metadata(project_id, attempt)
            )
        try:
            await self._bring_up_to_date(sandbox, files, ())
            return await self.get(sandbox.sandbox_id)
        except ProviderTroubleError as error:
            error.made_nothing = False  # whatever failed here, the sandbox exists
            raise

    async def find_attempt(self, *, project_id: str, attempt: str) -> PreviewSandbox | None:
        from e2b import SandboxQuery

        wanted = _metadata(project_id, attempt)
        pages = self._sandboxes.list(SandboxQuery(metadata=wanted))
        while pages.has_next:
            page = await self._repeated(pages.next_items)
            for found in page:
                if wanted.items() <= found.metadata.items():
                    return await self._find(found.sandbox_id)
        return None

    async def get(self, sandbox_id: str) -> PreviewSandbox:
        _check_id(sandbox_id)
        info = await self._repeated(lambda: self._sandboxes.get_info(sandbox_id))
        return self._known(info)

    async def end_time(self, sandbox_id: str) -> datetime:
        """A request costs the SDK more than a millisecond of CPU, so concurrent callers share a
        list."""
        _check_id(sandbox_id)
        return await self._end_times.get(sandbox_id)

    async def write_files(
        self, sandbox_id: str, *, written: Mapping[str, bytes], deleted: Collection[str]
    ) -> None:
        _check_id(sandbox_id)
        # Connecting may extend the sandbox's life, by 300 seconds by default; it must not.
        sandbox = await self._repeated(
            lambda: self._sandboxes.connect(sandbox_id, timeout=kit.SHORTEST_SEC)
        )
        await self._bring_up_to_date(sandbox, written, deleted)

    async def extend(self, sandbox_id: str, *, ttl: timedelta) -> None:
        _check_id(sandbox_id)
        async with self._asking(self._timeouts.request_sec):
            await self._sandboxes.set_timeout(sandbox_id, _seconds(ttl))

    async def kill(self, sandbox_id: str) -> None:
        try:
            _check_id(sandbox_id)
        except SandboxGoneError:
            return
        await self._repeated(lambda: self._sandboxes.kill(sandbox_id))

    async def close(self) -> None:
        """The SDK's connections belong to the process."""
        await self._end_times.stop()

    async def _ask_end_time(self, sandbox_id: str) -> datetime:
        return (await self.get(sandbox_id)).end_time

    async def _list_end_times(self) -> AsyncIterator[Mapping[str, datetime]]:
        from e2b import SandboxQuery, SandboxState

        running = SandboxQuery(metadata={"kind": _KIND}, state=[SandboxState.RUNNING])
        pages = self._sandboxes.list(running, limit=_PAGE)
        while pages.has_next:
            page = await self._repeated(pages.next_items)
            yield {each.sandbox_id: kit.utc(each.end_at) for each in page}

    async def _repeated(self, call: Callable[[], Awaitable[T]], asking: _Asking | None = None) -> T:
        """Retries an idempotent call after a 429 or 5xx, after the back-off; a request to the
        control API unless `asking` is given."""
        asking = asking or (lambda: self._asking(self._timeouts.request_sec))
        for _ in range(_REPEATS):
            try:
                async with asking():
                    return await call()
            except (ProviderRateLimitedError, ProviderFailedError) as error:
                if isinstance(error.__cause__, BackingOffError):
                    raise
        async with asking():
            return await call()

    def _asking(self, within_sec: float) -> AbstractAsyncContextManager[None]:
        """Wraps a request to the control API."""
        return kit.translated(within_sec, translation, backoff=self._backoff)

    async def _find(self, sandbox_id: str) -> PreviewSandbox | None:
        """A list does not include the sandbox's address, so it is requested separately."""
        try:
            return await self.get(sandbox_id)
        except SandboxGoneError:
            return None

    def _known(self, info: "SandboxInfo") -> PreviewSandbox:
        return PreviewSandbox(
            sandbox_id=info.sandbox_id,
            preview_url=kit.public_url(info, port=self._port, scheme=self._scheme),
            start_time=kit.utc(info.started_at),
            end_time=kit.utc(info.end_at),
            attempt=info.metadata.get("attempt", ""),
        )

    async def _bring_up_to_date(
        self, sandbox: "AsyncSandbox", written: Mapping[str, bytes], deleted: Collection[str]
    ) -> None:
        """These requests go to the sandbox itself, which has its own back-off."""
        from e2b import SandboxNotRunningException

        async def bring() -> None:
            await self._delete(sandbox, in_the_way(written, deleted))
            await kit.upload(sandbox, {f"{SITE}/{path}": written[path] for path in written})
            await self._serve(sandbox)

        def asking() -> AbstractAsyncContextManager[None]:
            within_sec, backoff = self._timeouts.files_sec, self._backoffs.of(sandbox.sandbox_id)
            return kit.translated(
                within_sec, translation, SandboxNotRunningException, backoff=backoff
            )

        try:
            await self._repeated(bring, asking)
        except SandboxNotRunningException as error:
            # The proxy in front of the sandbox reports this. Only the control API knows whether it
            # is gone.
            await self.get(sandbox.sandbox_id)
            raise ProviderUnreachableError(reason=str(error)) from error

    async def _delete(self, sandbox: "AsyncSandbox", paths: Collection[str]) -> None:
        from e2b import FileNotFoundException

        async def delete(path: str) -> None:
            try:
                await sandbox.files.remove(f"{SITE}/{path}")
            except FileNotFoundException:
                return

        await for_each(sorted(paths), delete, slots=asyncio.Semaphore(_DELETIONS_AT_ONCE))

    async def _serve(self, sandbox: "AsyncSandbox") -> None:
        """Start a web server and return when one listens.

        If one already listens, the new one finds its port taken and exits.
        """
        folder, port = shlex.quote(SITE), self._port
        program = shlex.quote(SITE_SERVER)
        server = await sandbox.commands.run(
            f"mkdir -p {folder} && exec python3 -I -c {program} 0.0.0.0 {port} {folder}",
            background=True,
            timeout=0,
        )
        await server.disconnect()
        await sandbox.commands.run(
            f"until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.1; done",
            timeout=self._timeouts.files_sec,
        )


def in_the_way(written: Mapping[str, bytes], deleted: Collection[str]) -> set[str]:
    """The paths to delete, and the emptied folders that a written file replaces."""
    folders = {
        path[:end]
        for path in deleted
        for end, character in enumerate(path)
        if character == "/" and path[:end] in written
    }
    return folders | set(deleted)


_TROUBLES: Mapping[kit.Trouble, type[ProviderTroubleError]] = {
    "key_refused": ProviderKeyRefusedError,
    "failed": ProviderFailedError,
    "unreachable": ProviderUnreachableError,
    "timeout": ProviderTimeoutError,
    "other": ProviderTroubleError,
}


def translation(error: Exception) -> SandyardError:
    """The SDK's error as one of ours."""
    ours = _translation(error)
    if isinstance(error, BackingOffError) and isinstance(ours, ProviderTroubleError):
        ours.made_nothing = True  # it was not sent
    return ours


def _translation(error: Exception) -> SandyardError:
    reason = kit.reason_of(error)
    match trouble := kit.trouble_of(error):
        case "gone":
            return SandboxGoneError()
        case "rate_limited":
            return ProviderRateLimitedError(retry_after=kit.retry_after(error), reason=reason)
        case _:
            return _TROUBLES[trouble](reason=reason)


def _metadata(project_id: str, attempt: str) -> dict[str, str]:
    return {"kind": _KIND, "project_id": project_id, "attempt": attempt}


def _check_id(sandbox_id: str) -> None:
    """An id of another format belongs to another provider's sandbox, which E2B does not have."""
    if not _SANDBOX_ID.fullmatch(sandbox_id):
        raise SandboxGoneError


def _seconds(ttl: timedelta) -> int:
    return max(ceil(ttl.total_seconds()), kit.SHORTEST_SEC)
