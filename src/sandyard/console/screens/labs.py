"""Labs: the pool by state, now and over a day, and its sandboxes with operators' actions."""

import asyncio
import re
import time
from collections.abc import Collection, Sequence
from typing import Any

from starlette.responses import JSONResponse, Response

from sandyard.console.app import ConsoleRequest, Screen, operator_screen
from sandyard.console.pages import lasting
from sandyard.kit.errors import NotFoundError

LABS = "/console/labs"
STATES = (
    "available",
    "reserved",
    "allocated",
    "pending_deletion",
    "stale",
    "held",
    "deletion_failed",
)
ACTIONS = {
    "quarantine": "Keep it from being leased",
    "hold": "Keep it as it is, to look at",
    "extend": "Give its track half an hour more",
    "replace": "Give its track another one, and hold this",
    "restore": "Let it be leased again",
    "release": "End its lease and delete it",
    "retry-deletion": "Try to delete it again",
}
OF_TRACKS = ("extend", "replace")
"""Actions that a track may take itself; an operator does so on its behalf."""
WITH_REASON = ("quarantine", "hold", "replace")
EXTENSION_MINUTES = 30
HOURS = (1, 6, 24)
_POINTS = 288
"""The most points of a chart: one per five minutes of a day."""
_SHOWN_WAITING = 10
_SHOWN_SOON = 5
_TO_COME = ("scheduled", "pending", "filled")
_SOON_SEC = 24 * 3600
"""Reservations of the next day are shown with the pool."""
_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_COLOURS = {
    "allocated": 0,
    "reserved": 1,
    "available": 2,
    "held": 3,
    "stale": 4,
    "pending_deletion": 5,
    "deletion_failed": 6,
}
"""Colours of the lines, matching the bar above them."""
BULK = {
    "delete": ("status", "track", "name", "older_than_hours"),
    "quarantine": ("status", "name"),
    "hold": ("status", "track", "name"),
}
"""The filter of each bulk change."""
HOLD_SEC = 24 * 3600
FILTERS = ("status", "q", "cursor")


async def _show(request: ConsoleRequest) -> Response:
    query = request.query
    filters = {name: query.get(name, "").strip() for name in FILTERS}
    if _ID.fullmatch(filters["q"]):  # its page exists also after the sandbox is deleted
        return request.redirect(f"{LABS}/sandboxes/{filters['q'].lower()}")
    pool, listed = await asyncio.gather(_pool(request), _listed(request, filters))
    return request.page(
        "labs.html",
        **pool,
        **listed,
        states=STATES,
        filters={name: value for name, value in filters.items() if value and name != "cursor"},
        hours=_hours(request),
        all_hours=HOURS,
    )


async def _pool(request: ConsoleRequest) -> dict[str, Any]:
    api = request.api
    admin = api.paths.broker + "/admin"
    stats, history, queue, provider, reserved = await asyncio.gather(
        api.get(f"{admin}/stats"),
        api.get(f"{admin}/history", hours=1, step_minutes=60),
        api.get(f"{admin}/queue", limit=_SHOWN_WAITING),
        api.get(f"{admin}/provider"),
        _reserved_soon(request),
    )
    return {
        "reserved": reserved,
        "stats": stats,
        "outlook": history,
        "exhausted_in": exhausted_in(stats["available"], history["exhausted_in_sec"]),
        "waiting": queue["tickets"],
        "more_wait": queue["next_cursor"] is not None,
        "provider": provider,
    }


def exhausted_in(available: int, estimated_sec: int | None) -> str | None:
    """None if nothing is foreseen. The estimate is from the last sample, which is up to a minute
    older than the count: an estimate of 0 with sandboxes available is out of date."""
    if not available:
        return "empty now"
    return lasting(estimated_sec) if estimated_sec else None


async def _reserved_soon(request: ConsoleRequest) -> list[dict[str, Any]]:
    """The first reservations of the next day that are or will be filled."""
    api, now = request.api, int(time.time())
    within = {"from": now, "to": now + _SOON_SEC}
    page = await api.call("GET", f"{api.paths.broker}/admin/reservations", query=within)
    to_come = [each for each in page["reservations"] if each["status"] in _TO_COME]
    return to_come[:_SHOWN_SOON]


async def _listed(request: ConsoleRequest, filters: dict[str, str]) -> dict[str, Any]:
    api = request.api
    path = f"{api.paths.broker}/admin/sandboxes"
    page: dict[str, Any] = await api.get(path, limit=50, **filters)
    return {name: page[name] for name in ("sandboxes", "next_cursor")}


def _hours(request: ConsoleRequest) -> int:
    chosen = request.query.get("hours", "24")
    return int(chosen) if chosen in map(str, HOURS) else HOURS[-1]


async def _chart(request: ConsoleRequest) -> Response:
    """The pool by state, or leases started; a step without a sample is a gap."""
    api, hours = request.api, _hours(request)
    step_minutes = max(1, hours * 60 // _POINTS)
    answer = await api.get(
        f"{api.paths.broker}/admin/history", hours=hours, step_minutes=step_minutes
    )
    samples = {each["at"]: each for each in answer["samples"]}
    times = range(min(samples), max(samples) + 1, step_minutes * 60) if samples else range(0)
    found = [samples.get(at) for at in times]
    if request.path_params["chart"] == "leases":
        values = [None if each is None else each["leases"] / step_minutes for each in found]
        series = [{"label": "leases per minute", "values": values}]
    else:
        series = [_series(state, found) for state in _used_states(samples.values())]
    return JSONResponse({"times": list(times), "series": series})


def _used_states(samples: Collection[dict[str, Any]]) -> list[str]:
    """The states that any sandbox was in, so that the legend has no lines that are always zero."""
    return [state for state in STATES if any(each[state] for each in samples)] or [STATES[0]]


def _series(state: str, samples: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    values = [None if each is None else each[state] for each in samples]
    return {"label": state.replace("_", " "), "values": values, "colour": _COLOURS[state]}


async def _show_sandbox(request: ConsoleRequest, *, notice: str | None = None) -> Response:
    api, sandbox_id = request.api, request.path_params["sandbox_id"]
    path = f"{api.paths.broker}/admin/sandboxes/{sandbox_id}"
    history = await api.get(f"{path}/history", limit=100)
    sandbox = await api.find(path)
    return request.page(
        "labs_sandbox.html",
        sandbox_id=sandbox_id,
        sandbox=sandbox,
        events=history["events"],
        actions=ACTIONS,
        offered=_offered(sandbox),
        with_reason=WITH_REASON,
        notice=notice,
    )


def _offered(sandbox: dict[str, Any] | None) -> list[str]:
    """What its track may do, and what an operator may."""
    if sandbox is None:
        return []
    of_track = OF_TRACKS if sandbox["status"] == "allocated" else ()
    return [*of_track, *sandbox["allowed_actions"]]


async def _act(request: ConsoleRequest) -> Response:
    parameters = request.path_params
    action, sandbox_id = parameters["action"], parameters["sandbox_id"]
    if action not in ACTIONS:
        raise NotFoundError("There is no such action.")
    form = await request.form()
    call = _act_for_track if action in OF_TRACKS else _act_as_operator
    done = await call(request, sandbox_id, action, form.get("reason", "by an operator"))
    return await _show_sandbox(request, notice=f"{done['name']}: {ACTIONS[action].lower()}. Done.")


async def _act_as_operator(
    request: ConsoleRequest, sandbox_id: str, action: str, reason: str
) -> dict[str, Any]:
    api = request.api
    body = {"reason": reason} if action in WITH_REASON else None
    done: dict[str, Any] = await api.post(
        f"{api.paths.broker}/admin/sandboxes/{sandbox_id}/{action}", body
    )
    return done


async def _act_for_track(
    request: ConsoleRequest, sandbox_id: str, action: str, reason: str
) -> dict[str, Any]:
    api = request.api
    row = await api.get(f"{api.paths.broker}/admin/sandboxes/{sandbox_id}")
    body = {"minutes": EXTENSION_MINUTES} if action == "extend" else {"reason": reason}
    done: dict[str, Any] = await api.post(
        f"{api.paths.broker}/sandboxes/{sandbox_id}/{action}",
        body,
        x_track_id=row["allocated_to_track"],
    )
    return done


async def _change_many(request: ConsoleRequest) -> Response:
    """Shows which would be changed; applies the change if the form confirms it."""
    form, api = await request.form(), request.api
    action, is_rehearsal = form.get("action", ""), "confirmed" not in form
    if action not in BULK:
        raise NotFoundError("There is no such action.")
    query: dict[str, Any] = {name: form.get(name) for name in BULK[action]}
    query["dry_run"] = "true" if is_rehearsal else "false"
    path = f"{api.paths.broker}/admin/bulk-{action}"
    answer = await api.call("POST", path, query=query, body=_bulk_body(action, form))
    return request.page("_bulk.html", answer=answer, form=form, is_rehearsal=is_rehearsal)


def _bulk_body(action: str, form: dict[str, str]) -> dict[str, Any] | None:
    if action == "delete":
        return None
    body: dict[str, Any] = {"reason": form.get("reason", "by an operator")}
    return body | {"until": int(time.time()) + HOLD_SEC} if action == "hold" else body


SCREENS = (
    Screen(LABS, _show, for_operators=True, is_shared=True),
    operator_screen(LABS + "/bulk", _change_many, "POST"),
    operator_screen(LABS + "/charts/{chart}", _chart),
    operator_screen(LABS + "/sandboxes/{sandbox_id}", _show_sandbox),
    operator_screen(LABS + "/sandboxes/{sandbox_id}/{action}", _act, "POST"),
)
