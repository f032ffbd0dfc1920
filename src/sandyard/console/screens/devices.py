"""Devices: the fleet, the silent ones first; one device's charts and history; and their keys."""

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from starlette.responses import JSONResponse, Response

from sandyard.console.app import ConsoleRequest, Screen, operator_screen
from sandyard.console.gaps import Range, strip

DEVICES = "/console/devices"
ONE = DEVICES + "/{hardware_id}"
_SILENT_AFTER = timedelta(hours=1)
RANGES = {
    "1h": (3_600, "1m", 60_000),
    "24h": (86_400, "15m", 900_000),
    "7d": (604_800, "2h", 7_200_000),
    "90d": (7_776_000, "1d", 86_400_000),
}
"""The length of each in seconds; and its buckets, in the API's notation and in milliseconds."""
_MOST_SENSORS = 6


def _path(request: ConsoleRequest, tail: str = "") -> str:
    hardware_id = request.path_params["hardware_id"]
    return f"{request.api.paths.telemetry}/devices/{hardware_id}{tail}"


async def _list(request: ConsoleRequest) -> Response:
    wanted = request.query.get("id", "").strip()
    if wanted:
        return request.redirect(f"{DEVICES}/{quote(wanted.upper(), safe='')}")
    return await _fleet(request, made=None)


async def _fleet(request: ConsoleRequest, *, made: dict[str, Any] | None) -> Response:
    api = request.api
    telemetry = api.paths.telemetry
    listed, keys = await asyncio.gather(
        api.get(
            f"{telemetry}/devices",
            order="silent",
            limit=100,
            cursor=request.query.get("cursor"),
        ),
        api.get(f"{telemetry}/api-keys", limit=50),
    )
    since = datetime.now(UTC) - _SILENT_AFTER
    devices = [
        each | {"is_silent": datetime.fromisoformat(each["last_seen_at"]) < since}
        for each in listed["devices"]
    ]
    return request.page(
        "devices.html",
        devices=devices,
        next_cursor=listed["next_cursor"],
        keys=keys["api_keys"],
        made=made,
    )


async def _make_key(request: ConsoleRequest) -> Response:
    form, api = await request.form(), request.api
    body = {"description": form["description"]} if "description" in form else {}
    made = await api.post(f"{api.paths.telemetry}/api-keys", body)
    return await _fleet(request, made=made)


async def _revoke_key(request: ConsoleRequest) -> Response:
    api = request.api
    key_id = request.path_params["key_id"]
    await api.call("DELETE", f"{api.paths.telemetry}/api-keys/{key_id}")
    return await _fleet(request, made=None)


async def _show(request: ConsoleRequest) -> Response:
    api = request.api
    device, history, latest = await asyncio.gather(
        api.get(_path(request)),
        api.get(_path(request, "/history"), limit=20),
        api.find(_path(request, "/latest")),
    )
    query = request.query
    chosen = query.get("range", "24h")
    sensors = sorted(latest["sensors"]) if latest else []
    return request.page(
        "device.html",
        device=device,
        events=history["events"],
        latest=latest,
        sensors=sensors,
        together=[name for name in query.getlist("with") if name in sensors][:_MOST_SENSORS],
        ranges=list(RANGES),
        chosen=chosen if chosen in RANGES else "24h",
    )


async def _rename(request: ConsoleRequest) -> Response:
    name = (await request.form()).get("friendly_name")
    await request.api.call("PUT", _path(request), body={"friendly_name": name})
    return await _show(request)


async def _chart(request: ConsoleRequest) -> Response:
    """Means of several sensors over one range; a bucket without a reading is a gap."""
    found = await _series(request)
    starts = found.starts if any(found.means.values()) else range(0)
    series = [
        {"label": metric, "values": [mean.get(start) for start in starts]}
        for metric, mean in found.means.items()
    ]
    return JSONResponse({"times": [start / 1000 for start in starts], "series": series})


async def _gaps(request: ConsoleRequest) -> Response:
    """When each sensor was silent, and when all of them were."""
    device, found = await asyncio.gather(request.api.get(_path(request)), _series(request))
    seconds = {name: [at / 1000 for at in mean] for name, mean in found.means.items()}
    sent = {at for each in seconds.values() for at in each}
    registered_at = datetime.fromisoformat(device["first_registered_at"]).timestamp()
    known_from = min(registered_at, *sent) if sent else registered_at  # it may have buffered some
    within = Range(found.starts[0] / 1000, found.to_ms / 1000, known_from, found.step / 1000)
    every = strip("any sensor", sent, within)
    strips = [strip(name, each, within) for name, each in seconds.items()]
    shown = [every, *strips] if len(strips) > 1 else strips
    return request.page("_gaps.html", strips=shown, gaps=every.gaps[::-1])


@dataclass(frozen=True, slots=True)
class _Series:
    """Means of each sensor by the start of their bucket; all in milliseconds."""

    means: dict[str, dict[int, float]]
    to_ms: int
    step: int
    starts: range


async def _series(request: ConsoleRequest) -> _Series:
    """For the requested sensors and range."""
    query = request.query
    seconds, bucket, step = RANGES.get(query.get("range", ""), RANGES["24h"])
    to_ms = int(time.time() * 1000)
    metrics = list(dict.fromkeys(query.getlist("metric")))[:_MOST_SENSORS]
    within: dict[str, str | int] = {"from": to_ms - seconds * 1000, "to": to_ms, "bucket": bucket}
    path, api = _path(request, "/series"), request.api
    answers = await asyncio.gather(
        *(api.call("GET", path, query={"metric": metric, **within}) for metric in metrics)
    )
    means = {
        metric: {each["start_ms"]: each["mean"] for each in answer["series"]}
        for metric, answer in zip(metrics, answers, strict=True)
    }
    first = (to_ms - seconds * 1000) // step * step
    return _Series(means, to_ms, step, range(first, to_ms, step))


SCREENS = (
    Screen(DEVICES, _list, for_operators=True, is_shared=True),
    operator_screen(DEVICES + "/keys", _make_key, "POST"),
    operator_screen(DEVICES + "/keys/{key_id}", _revoke_key, "DELETE"),
    operator_screen(ONE, _show),
    operator_screen(ONE, _rename, "POST"),
    operator_screen(ONE + "/chart", _chart),
    operator_screen(ONE + "/gaps", _gaps),
)
