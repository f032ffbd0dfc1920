"""Devices: the fleet, the silent ones first; one device's charts and history; and their keys."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.responses import JSONResponse, Response

from sandyard.console.app import ConsoleRequest, Screen

DEVICES = "/console/devices"
ONE = DEVICES + "/{hardware_id}"
_SILENT_AFTER = timedelta(hours=1)
RANGES = {
    "1h": (3_600, "1m"),
    "24h": (86_400, "15m"),
    "7d": (604_800, "2h"),
    "90d": (7_776_000, "1d"),
}


def _path(request: ConsoleRequest, tail: str = "") -> str:
    hardware_id = request.http.path_params["hardware_id"]
    return f"{request.signed_in.api.paths.telemetry}/devices/{hardware_id}{tail}"


async def _list(request: ConsoleRequest) -> Response:
    return await _fleet(request, made=None)


async def _fleet(request: ConsoleRequest, *, made: dict[str, Any] | None) -> Response:
    api = request.signed_in.api
    telemetry = api.paths.telemetry
    listed, keys = await asyncio.gather(
        api.get(
            f"{telemetry}/devices",
            order="silent",
            limit=100,
            cursor=request.http.query_params.get("cursor"),
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
    form, api = await request.form(), request.signed_in.api
    body = {"description": form["description"]} if "description" in form else {}
    made = await api.post(f"{api.paths.telemetry}/api-keys", body)
    return await _fleet(request, made=made)


async def _revoke_key(request: ConsoleRequest) -> Response:
    api = request.signed_in.api
    key_id = request.http.path_params["key_id"]
    await api.call("DELETE", f"{api.paths.telemetry}/api-keys/{key_id}")
    return await _fleet(request, made=None)


async def _show(request: ConsoleRequest) -> Response:
    api = request.signed_in.api
    device, history, latest = await asyncio.gather(
        api.get(_path(request)),
        api.get(_path(request, "/history"), limit=20),
        api.find(_path(request, "/latest")),
    )
    chosen = request.http.query_params.get("range", "24h")
    return request.page(
        "device.html",
        device=device,
        events=history["events"],
        latest=latest,
        ranges=list(RANGES),
        chosen=chosen if chosen in RANGES else "24h",
    )


async def _rename(request: ConsoleRequest) -> Response:
    name = (await request.form()).get("friendly_name")
    await request.signed_in.api.call("PUT", _path(request), body={"friendly_name": name})
    return await _show(request)


async def _chart(request: ConsoleRequest) -> Response:
    """Means of several sensors over one range; a bucket without a reading is a gap."""
    asked = request.http.query_params
    seconds, bucket = RANGES.get(asked.get("range", ""), RANGES["24h"])
    now_ms = int(time.time() * 1000)
    metrics = asked.getlist("metric")[:6]
    answers = await asyncio.gather(
        *(
            request.signed_in.api.call(
                "GET",
                _path(request, "/series"),
                query={
                    "metric": metric,
                    "from": now_ms - seconds * 1000,
                    "to": now_ms,
                    "bucket": bucket,
                },
            )
            for metric in metrics
        )
    )
    means = [{each["start_ms"]: each["mean"] for each in answer["series"]} for answer in answers]
    step = answers[0]["bucket_ms"] if answers else 1
    first = (now_ms - seconds * 1000) // step * step
    starts = range(first, now_ms, step) if any(means) else range(0)
    series = [
        {"label": metric, "values": [mean.get(start) for start in starts]}
        for metric, mean in zip(metrics, means, strict=True)
    ]
    return JSONResponse({"times": [start / 1000 for start in starts], "series": series})


def _for_operators(path: str, draw: Any, *methods: str) -> Screen:
    return Screen(path, draw, methods=methods or ("GET",), for_operators=True)


SCREENS = (
    _for_operators(DEVICES, _list),
    _for_operators(DEVICES + "/keys", _make_key, "POST"),
    _for_operators(DEVICES + "/keys/{key_id}", _revoke_key, "DELETE"),
    _for_operators(ONE, _show),
    _for_operators(ONE, _rename, "POST"),
    _for_operators(ONE + "/chart", _chart),
)
