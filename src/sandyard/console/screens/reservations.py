"""Reservations: as a calendar, with creating and cancelling."""

import time
from typing import Any

from starlette.responses import Response

from sandyard.console.app import ConsoleRequest, Screen
from sandyard.console.forms import instant, whole_number
from sandyard.console.screens.labs import LABS

RESERVATIONS = LABS + "/reservations"
_DAYS = 14
_DAY_SEC = 86_400


def _path(request: ConsoleRequest, tail: str = "") -> str:
    return f"{request.api.paths.broker}/admin/reservations{tail}"


async def _show(request: ConsoleRequest) -> Response:
    """The page determines the days, as they begin and end in its viewer's time zone."""
    now = int(time.time())
    within = {"from": now - _DAY_SEC, "to": now + _DAYS * _DAY_SEC, "limit": 100}
    found = await request.api.call("GET", _path(request), query=within)
    rows = [each for each in found["reservations"] if each["status"] != "cancelled"]
    return request.page("reservations.html", days=_DAYS, rows=rows)


async def _make(request: ConsoleRequest) -> Response:
    form = await request.form()
    body: dict[str, Any] = {"count": whole_number(form, "count")}
    names = ("track_prefix", "client", "name_prefix", "note")
    body |= {name: form[name] for name in names if name in form}
    body |= {name: int(instant(form, name).timestamp()) for name in ("from", "to") if name in form}
    await request.api.post(_path(request), body)
    return await _show(request)


async def _cancel(request: ConsoleRequest) -> Response:
    reservation_id = request.path_params["reservation_id"]
    await request.api.call("DELETE", _path(request, f"/{reservation_id}"))
    return await _show(request)


SCREENS = (
    Screen(RESERVATIONS, _show, for_operators=True, is_shared=True),
    Screen(RESERVATIONS, _make, methods=("POST",), for_operators=True),
    Screen(
        RESERVATIONS + "/{reservation_id}/cancel", _cancel, methods=("POST",), for_operators=True
    ),
)
