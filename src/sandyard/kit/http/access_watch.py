"""Long requests end soon after the access that they were granted: it is checked again meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, Self

from starlette.types import Scope

from sandyard.kit import errors

CHECK_EVERY_SEC = 4.0
"""Access ends within five seconds."""
Check = Callable[[], Awaitable[Any]]
_STATE = "access_watch"
_REFUSALS = (errors.UnauthorizedError, errors.ForbiddenError, errors.NotFoundError)


async def until_refused(check: Check) -> NoReturn:
    """Repeats the check; raises its error once access is refused. While the engine is unavailable,
    access stays as it was."""
    while True:
        await asyncio.sleep(CHECK_EVERY_SEC)
        with suppress(errors.UnavailableError):
            await check()


class AccessWatch:
    """Serves one HTTP request: once the check that was begun refuses access, the request is
    cancelled, and this context raises the check's error."""

    def __init__(self, scope: Scope) -> None:
        self._state = scope.setdefault("state", {})
        self._timer: asyncio.TimerHandle | None = None
        self._checks: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[Any] | None = None
        self.refusal: errors.SandyardError | None = None

    def begin(self, check: Check) -> None:
        """Access was granted just now. The first check starts by a timer, so that short requests
        need no task."""
        self._stop()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(CHECK_EVERY_SEC, self._start, check)

    def leave_end(self) -> None:
        """The response ends itself when there is a refusal; it is not cancelled."""
        self._serving = None

    def _start(self, check: Check) -> None:
        self._checks = asyncio.create_task(self._repeat(check))

    async def _repeat(self, check: Check) -> None:
        try:
            with suppress(errors.UnavailableError):
                await check()
            await until_refused(check)
        except _REFUSALS as error:
            self.refusal = error
            if self._serving is not None:
                self._serving.cancel()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._checks is not None:
            self._checks.cancel()

    async def __aenter__(self) -> Self:
        self._serving = asyncio.current_task()
        self._state[_STATE] = self
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._stop()
        serving, self._serving = self._serving, None
        if self.refusal is not None and serving is not None:
            is_only_ours = serving.uncancel() == 0
            if is_only_ours and kind is asyncio.CancelledError:
                raise self.refusal


def watch_access(scope: Scope, check: Check) -> None:
    """From now on, an HTTP request ends within five seconds after the check refuses access. For
    other connections, `until_refused` is for their servers."""
    watch = find_watch(scope)
    if watch is not None and scope["type"] == "http":
        watch.begin(check)


def find_watch(scope: Scope) -> AccessWatch | None:
    """The request's; None outside of a server."""
    found: AccessWatch | None = scope.get("state", {}).get(_STATE)
    return found
