"""Labs: the pool by state, now and over a day; its sandboxes and what operators do with them; the
queue, reservations, jobs and the provider."""

import asyncio
import re
import time
from collections.abc import Collection, Sequence
from typing import Any

from starlette.responses import JSONResponse, Response

from sandyard.console.app import ConsoleRequest, calling, operator_screen
from sandyard.console.forms import instant, whole_number
from sandyard.console.pages import lasting
from sandyard.kit.errors import NotFoundError

LABS = "/console/labs"
RESERVATIONS = LABS + "/reservations"
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
WITH_REASON = ("quarantine", "hold", "replace")
EXTENSION_MINUTES = 30
HOURS = (1, 6, 24)
_POINTS = 288
"""The most points of a chart: one per five minutes of a day."""
_SHOWN_WAITING = 10
_SHOWN_SOON = 5
_TO_COME = ("scheduled", "pending", "filled")
_DAY_SEC = 24 * 3600
_CALENDAR_DAYS = 14
_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TRACK = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_ENDS = ("lease.ended", "lease.replaced", "sandbox.held", "sandbox.deleted")
"""The events that end a lease."""
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
    "restore": ("status", "name"),
}
"""The filter of each bulk change."""
_SANDBOX = "broker/admin/sandboxes/{sandbox_id}"
_TICKET = "broker/admin/queue/{ticket_id}"


async def _show(request: ConsoleRequest) -> Response:
    filters = request.filters("status", "q", "sort", "cursor")
    if _ID.fullmatch(filters.get("q", "")):  # its page exists also after the sandbox is deleted
        return request.redirect(f"{LABS}/sandboxes/{filters['q'].lower()}")
    listing = request.api.get("broker/admin/sandboxes", limit=50, **filters)
    pool, listed = await asyncio.gather(_pool(request), listing)
    filters.pop("cursor", None)
    return request.page(
        "labs.html",
        **pool,
        sandboxes=listed["sandboxes"],
        next_cursor=listed["next_cursor"],
        states=STATES,
        filters=filters,
        hours=_hours(request),
        all_hours=HOURS,
        is_track=_TRACK.fullmatch(filters.get("q", "")) is not None,
    )


async def _pool(request: ConsoleRequest) -> dict[str, Any]:
    api = request.api
    stats, history, queue, provider, reserved = await asyncio.gather(
        api.get("broker/admin/stats"),
        api.get("broker/admin/history", hours=1, step_minutes=60),
        api.get("broker/admin/queue", limit=_SHOWN_WAITING),
        api.get("broker/admin/provider"),
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
    now = int(time.time())
    within = {"from": now, "to": now + _DAY_SEC}
    page = await request.api.get("broker/admin/reservations", **within)
    to_come = [each for each in page["reservations"] if each["status"] in _TO_COME]
    return to_come[:_SHOWN_SOON]


def _hours(request: ConsoleRequest) -> int:
    chosen = request.query.get("hours", "24")
    return int(chosen) if chosen in map(str, HOURS) else HOURS[-1]


async def _chart(request: ConsoleRequest) -> Response:
    """The pool by state, or leases started; a step without a sample is a gap."""
    hours = _hours(request)
    step_minutes = max(1, hours * 60 // _POINTS)
    answer = await request.api.get("broker/admin/history", hours=hours, step_minutes=step_minutes)
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
    history = await request.api.get(_SANDBOX + "/history", limit=100)
    sandbox = await request.api.find(_SANDBOX)
    return request.page(
        "labs_sandbox.html",
        sandbox_id=request.path_params["sandbox_id"],
        sandbox=sandbox,
        events=history["events"],
        actions=ACTIONS,
        offered=sandbox["allowed_actions"] if sandbox else [],
        with_reason=WITH_REASON,
        notice=notice,
    )


async def _show_track(request: ConsoleRequest) -> Response:
    """All that happened to one track's sandboxes, also after their deletion."""
    track, cursor = request.path_params["track"], request.query.get("cursor")
    story = await request.api.get("broker/admin/events", track=track, limit=100, cursor=cursor)
    return request.page(
        "labs_track.html",
        track=track,
        leases=leases_in(story["events"], track),
        events=story["events"],
        next_cursor=story["next_cursor"],
    )


def leases_in(events: Sequence[dict[str, Any]], track: str) -> list[dict[str, Any]]:
    """The track's leases that these events, newest first, begin, each with the event that ended
    it."""
    leases: list[dict[str, Any]] = []
    for place, event in enumerate(events):
        data = event["data"]
        if event["kind"] != "lease.created" or data.get("allocated_to_track") != track:
            continue
        later = [each for each in events[:place] if each["subject"] == event["subject"]]
        ends = [
            data["ends_at"],
            *(e["data"]["ends_at"] for e in later[::-1] if e["data"].get("ends_at")),
        ]
        lease = {"sandbox_id": event["subject"], "name": data["name"], "began_at": event["at"]}
        lease["expires_at"] = ends[-1]
        lease["end"] = next((each for each in reversed(later) if each["kind"] in _ENDS), None)
        leases.append(lease)
    return leases


async def _act(request: ConsoleRequest) -> Response:
    action = request.path_params["action"]
    if action not in ACTIONS:
        raise NotFoundError("There is no such action.")
    reason = (await request.form()).get("reason", "by an operator")
    body: dict[str, Any] | None = {"reason": reason} if action in WITH_REASON else None
    if action == "extend":
        body = {"minutes": EXTENSION_MINUTES}
    name = (await request.api.get(_SANDBOX))["name"]
    done = await request.api.post(_SANDBOX + "/{action}", body)
    notice = f"{name}: {ACTIONS[action].lower()}. Done."
    if done["name"] != name:
        notice += f" Its track has {done['name']} now."
    return await _show_sandbox(request, notice=notice)


async def _change_many(request: ConsoleRequest) -> Response:
    """Shows which would be changed; applies the change if the form confirms it."""
    form = await request.form()
    action, is_rehearsal = form.get("action", ""), "confirmed" not in form
    if action not in BULK:
        raise NotFoundError("There is no such action.")
    query: dict[str, Any] = {name: form.get(name) for name in BULK[action]}
    query["dry_run"] = "true" if is_rehearsal else "false"
    path, body = f"broker/admin/bulk-{action}", _bulk_body(action, form)
    answer = await request.api.call("POST", path, query=query, body=body)
    return request.page("_bulk.html", answer=answer, form=form, is_rehearsal=is_rehearsal)


def _bulk_body(action: str, form: dict[str, str]) -> dict[str, Any] | None:
    if action in ("delete", "restore"):
        return None
    body: dict[str, Any] = {"reason": form.get("reason", "by an operator")}
    return body | {"until": int(time.time()) + _DAY_SEC} if action == "hold" else body


async def _show_jobs(request: ConsoleRequest) -> Response:
    """With their last and next runs, and the provider."""
    jobs, provider = await asyncio.gather(
        request.api.get("broker/admin/jobs"), request.api.get("broker/admin/provider")
    )
    return request.page("lab_jobs.html", jobs=jobs["jobs"], provider=provider)


async def _run_job(request: ConsoleRequest) -> Response:
    done = await request.api.post("broker/admin/jobs/{job}/run")
    return request.page("_counts.html", title=done["job"], counts=done["counts"])


async def _show_waiting(request: ConsoleRequest) -> Response:
    cursor = request.query.get("cursor")
    page = await request.api.get("broker/admin/queue", limit=50, cursor=cursor)
    return request.page(
        "lab_waiting.html", waiting=page["tickets"], next_cursor=page["next_cursor"]
    )


async def _show_reservations(request: ConsoleRequest) -> Response:
    """The page determines the days, as they begin and end in its viewer's time zone."""
    now = int(time.time())
    within = {"from": now - _DAY_SEC, "to": now + _CALENDAR_DAYS * _DAY_SEC, "limit": 100}
    found = await request.api.get("broker/admin/reservations", **within)
    rows = [each for each in found["reservations"] if each["status"] != "cancelled"]
    return request.page("reservations.html", days=_CALENDAR_DAYS, rows=rows)


async def _reserve(request: ConsoleRequest) -> Response:
    form = await request.form()
    body: dict[str, Any] = {"count": whole_number(form, "count")}
    body |= await request.form("track_prefix", "client", "name_prefix", "note")
    body |= {name: int(instant(form, name).timestamp()) for name in ("from", "to") if name in form}
    await request.api.post("broker/admin/reservations", body)
    return await _show_reservations(request)


SCREENS = (
    operator_screen(LABS, _show, is_shared=True),
    operator_screen(LABS + "/bulk", _change_many, "POST"),
    operator_screen(LABS + "/charts/{chart}", _chart),
    operator_screen(LABS + "/sandboxes/{sandbox_id}", _show_sandbox),
    operator_screen(LABS + "/tracks/{track}", _show_track),
    operator_screen(LABS + "/sandboxes/{sandbox_id}/{action}", _act, "POST"),
    operator_screen(LABS + "/jobs", _show_jobs, is_shared=True),
    operator_screen(LABS + "/jobs/{job}", _run_job, "POST"),
    operator_screen(LABS + "/waiting", _show_waiting, is_shared=True),
    operator_screen(
        LABS + "/waiting/{ticket_id}/first",
        calling(f"PATCH {_TICKET}", _show_waiting, {"urgency": 0}),
        "POST",
    ),
    operator_screen(
        LABS + "/waiting/{ticket_id}/drop", calling(f"DELETE {_TICKET}", _show_waiting), "POST"
    ),
    operator_screen(RESERVATIONS, _show_reservations, is_shared=True),
    operator_screen(RESERVATIONS, _reserve, "POST"),
    operator_screen(
        RESERVATIONS + "/{reservation_id}/cancel",
        calling("DELETE broker/admin/reservations/{reservation_id}", _show_reservations),
        "POST",
    ),
)
