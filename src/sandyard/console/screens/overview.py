"""The overview page: a summary of each part, and next steps."""

import asyncio
from typing import Any

from starlette.responses import Response

from sandyard.console.api import ApiError
from sandyard.console.app import ConsoleRequest, Screen
from sandyard.console.screens.labs import STATES
from sandyard.console.screens.login import HOME
from sandyard.console.viewer import Viewer

_SHOWN_EVENTS = 8


async def _go_home(request: ConsoleRequest) -> Response:
    return request.redirect(HOME)


async def _show(request: ConsoleRequest) -> Response:
    viewer, parts = request.signed_in, request.console.pages.parts
    calls = {}
    if viewer.operates("broker") and "broker" in parts:
        calls["pool"] = _or_error(viewer, "broker/admin/stats")
    if viewer.account is not None:
        calls["sandboxes"] = _or_error(viewer, "platform/sandboxes", limit=5)
        calls["spent"] = _or_error(viewer, "platform/billing/month-to-date")
    if viewer.operates("telemetry") and "telemetry" in parts:
        calls["devices"] = _or_error(viewer, "telemetry/devices", limit=5)
    if viewer.account is not None:
        calls["events"] = _or_error(viewer, "platform/events", limit=_SHOWN_EVENTS)
    elif viewer.operates("broker") and "broker" in parts:
        calls["events"] = _or_error(viewer, "broker/admin/events", limit=_SHOWN_EVENTS)
    answers = dict(zip(calls, await asyncio.gather(*calls.values()), strict=True))
    return request.page("overview.html", shown=answers, states=STATES)


async def _or_error(viewer: Viewer, path: str, **query: int) -> dict[str, Any] | ApiError:
    """One unavailable part must not hide the others."""
    try:
        answer: dict[str, Any] = await viewer.api.get(path, **query)
    except ApiError as error:
        return error
    return answer


SCREENS = (Screen("/", _go_home, is_open=True), Screen(HOME, _show))
