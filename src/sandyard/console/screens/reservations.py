"""Reservations: who has sandboxes kept for when, as a calendar; making and cancelling them."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.responses import Response

from sandyard.console.app import ConsoleRequest, Screen
from sandyard.console.forms import utc_seconds, whole_number
from sandyard.console.screens.labs import LABS

RESERVATIONS = LABS + "/reservations"
_DAYS = 14
_DAY_SEC = 86_400


def _path(request: ConsoleRequest, tail: str = "") -> str:
    return f"{request.signed_in.api.paths.broker}/admin/reservations{tail}"


async def _show(request: ConsoleRequest) -> Response:
    first = int(time.time()) // _DAY_SEC * _DAY_SEC
    last = first + _DAYS * _DAY_SEC
    found = await request.signed_in.api.call(
        "GET", _path(request), query={"from": first, "to": last, "limit": 100}
    )
    today = datetime.fromtimestamp(first, UTC)
    return request.page(
        "reservations.html",
        days=[(today + timedelta(days=number)).strftime("%a %d") for number in range(_DAYS)],
        rows=[each | _cells(each, first) for each in found["reservations"]],
    )


def _cells(reservation: dict[str, Any], first: int) -> dict[str, list[bool]]:
    """On which of the days it is."""
    days = [first + number * _DAY_SEC for number in range(_DAYS)]
    begins, ends = reservation["from"], reservation["to"]
    return {"cells": [begins < day + _DAY_SEC and ends > day for day in days]}


async def _make(request: ConsoleRequest) -> Response:
    form = await request.form()
    body: dict[str, Any] = {"count": whole_number(form, "count")}
    names = ("track_prefix", "client", "name_prefix", "note")
    body |= {name: form[name] for name in names if name in form}
    body |= {name: utc_seconds(form, name) for name in ("from", "to") if name in form}
    await request.signed_in.api.post(_path(request), body)
    return await _show(request)


async def _cancel(request: ConsoleRequest) -> Response:
    reservation_id = request.http.path_params["reservation_id"]
    await request.signed_in.api.call("DELETE", _path(request, f"/{reservation_id}"))
    return await _show(request)


SCREENS = (
    Screen(RESERVATIONS, _show, for_operators=True, is_shared=True),
    Screen(RESERVATIONS, _make, methods=("POST",), for_operators=True),
    Screen(
        RESERVATIONS + "/{reservation_id}/cancel", _cancel, methods=("POST",), for_operators=True
    ),
)
