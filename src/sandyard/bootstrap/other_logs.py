"""The event logs of parts that another process, or another part of it, writes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.kit.changes.events import EventListing, EventLog, EventQuery, LoggedEvent
from sandyard.kit.paging import Page
from sandyard.platform.http import PREFIX

if TYPE_CHECKING:
    from sandyard.settings import Settings
    from sandyard.wiring.spec import PartSpec

_LOG_CONNECTIONS = 2
"""Connections to PostgreSQL for the log of each other part."""

OpenLog = Callable[[], AbstractAsyncContextManager[EventLog]]


def other_logs(
    settings: "Settings", data_dir: Path, specs: Sequence["PartSpec"]
) -> Mapping[str, OpenLog]:
    """The logs of these parts; read on separate connections."""
    server = settings.server.model_copy(update={"database_pool_size": _LOG_CONNECTIONS})
    few = replace(settings, server=server)
    return {spec.name: partial(spec.log, few, data_dir) for spec in specs}


class OtherLog:
    """An event listing that is opened when it is first read, and closed by the stack."""

    def __init__(self, open_log: OpenLog, stack: AsyncExitStack) -> None:
        self._open_log = open_log
        self._stack = stack
        self._opening = asyncio.Lock()
        self._log: EventLog | None = None

    async def page(self, query: EventQuery, *, limit: int, cursor: str | None) -> Page[LoggedEvent]:
        async with self._opening:
            if self._log is None:
                self._log = await self._stack.enter_async_context(self._open_log())
        return await self._log.page(query, limit=limit, cursor=cursor)


@dataclass(frozen=True, slots=True)
class MainProcess:
    """The main process, as the tenants' process knows it."""

    app: ASGIApp
    """Passes a request on to its API."""
    logs: Sequence[EventListing]
    """The events of its parts."""


def api_of_all_parts(own: ASGIApp, main: MainProcess | None) -> ASGIApp:
    """Serves the Platform's API here, and any other in the main process, if there is one."""
    return own if main is None else partial(_call, own, main.app)


async def _call(own: ASGIApp, main: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    is_own = scope["path"].startswith(f"{PREFIX}/")
    await (own if is_own else main)(scope, receive, send)
