"""Devices: the fleet, the silent ones first; one device's charts and history; and their keys."""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

from starlette.responses import JSONResponse, Response

from sandyard.console.app import ConsoleRequest, calling, device_screen
from sandyard.console.forms import TEXT, TEXT_OR_NONE

Kind = Literal["before", "readings", "gap"]


@dataclass(frozen=True, slots=True)
class Stretch:
    kind: Kind
    begins_at: float
    ends_at: float
    offset: float
    """Offset from the start of the range, and length, both in percent of it."""
    share: float

    @property
    def seconds(self) -> float:
        return self.ends_at - self.begins_at


@dataclass(frozen=True, slots=True)
class Strip:
    label: str
    stretches: Sequence[Stretch]

    @property
    def gaps(self) -> list[Stretch]:
        return [each for each in self.stretches if each.kind == "gap"]


def strip(label: str, answer: Mapping[str, Any], begins_ms: int, ends_ms: int) -> Strip:
    """`answer` is the API's for the range, which it may begin later."""
    found: list[Stretch] = []
    at = begins_ms

    def share(length_ms: int) -> float:
        return round(100 * length_ms / (ends_ms - begins_ms), 3)

    def go_to(end: int, kind: Kind) -> int:
        if end > at:
            offset, length = share(at - begins_ms), share(end - at)
            found.append(Stretch(kind, at / 1000, end / 1000, offset, length))
        return max(end, at)

    at = go_to(min(answer["from_ms"], ends_ms), "before")
    for gap in answer["gaps"]:
        at = go_to(gap["from_ms"], "readings")
        at = go_to(gap["to_ms"], "gap")
    go_to(ends_ms, "readings")
    return Strip(label, found)


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
DEFAULT_RANGE = "24h"
_MOST_SENSORS = 6
_HARDWARE_ID = re.compile(r"[0-9A-F]{2}(:[0-9A-F]{2}){5}")
_DEVICE = "telemetry/devices/{hardware_id}"


async def _list(request: ConsoleRequest) -> Response:
    wanted = request.query.get("q", "").strip().upper()
    if _HARDWARE_ID.fullmatch(wanted):
        return request.redirect(f"{DEVICES}/{quote(wanted, safe='')}")
    return await _fleet(request)


async def _fleet(request: ConsoleRequest, *, made: dict[str, Any] | None = None) -> Response:
    """`made` is a key that was just created."""
    filters = request.filters("q", "cursor")
    listed, keys = await asyncio.gather(
        request.api.get("telemetry/devices", order="silent", limit=100, **filters),
        request.api.get("telemetry/api-keys", limit=50),
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
        filters=request.filters("q"),
        keys=keys["api_keys"],
        made=made,
    )


async def _show(request: ConsoleRequest) -> Response:
    api, query = request.api, request.query
    chosen = query.get("range") if query.get("range") in RANGES else DEFAULT_RANGE
    device, history, latest, shown = await asyncio.gather(
        api.get(_DEVICE),
        api.get(_DEVICE + "/history", limit=20),
        api.find(_DEVICE + "/latest"),
        api.get(_DEVICE + "/sensors", **_within(str(chosen))),
    )
    sensors = dict(latest["sensors"]) if latest else {}
    sensors |= {each["name"]: each["value"] for each in shown["sensors"]}
    return request.page(
        "device.html",
        device=device,
        events=history["events"],
        sensors=dict(sorted(sensors.items())),
        together=[name for name in query.getlist("with") if name in sensors][:_MOST_SENSORS],
        ranges=list(RANGES),
        chosen=chosen,
    )


def _within(chosen: str) -> dict[str, int]:
    to_ms = int(time.time() * 1000)
    return {"from": to_ms - RANGES[chosen][0] * 1000, "to": to_ms}


async def _chart(request: ConsoleRequest) -> Response:
    """Means of several sensors over one range; a bucket without a reading is a gap."""
    chosen, metrics = _charted(request)
    _, bucket, step = RANGES[chosen]
    within = _within(chosen)
    get = partial(request.api.get, _DEVICE + "/series", bucket=bucket, **within)
    answers = await asyncio.gather(*(get(metric=metric) for metric in metrics))
    means = [{each["start_ms"]: each["mean"] for each in answer["series"]} for answer in answers]
    starts = range(within["from"] // step * step, within["to"], step) if any(means) else range(0)
    series = [
        {"label": metric, "values": [mean.get(start) for start in starts]}
        for metric, mean in zip(metrics, means, strict=True)
    ]
    return JSONResponse({"times": [start / 1000 for start in starts], "series": series})


async def _gaps(request: ConsoleRequest) -> Response:
    """When each sensor was silent, and when all of them were."""
    chosen, metrics = _charted(request)
    within = _within(chosen)
    get = partial(request.api.get, _DEVICE + "/gaps", **within)
    answers = await asyncio.gather(get(), *(get(metric=metric) for metric in metrics))
    labels = ["any sensor", *metrics]
    every, *strips = (
        strip(label, answer, within["from"], within["to"])
        for label, answer in zip(labels, answers, strict=True)
    )
    shown = [every, *strips] if len(strips) > 1 else strips
    return request.page("_gaps.html", strips=shown, gaps=every.gaps[::-1])


def _charted(request: ConsoleRequest) -> tuple[str, list[str]]:
    chosen = request.query.get("range", "")
    metrics = list(dict.fromkeys(request.query.getlist("metric")))[:_MOST_SENSORS]
    return chosen if chosen in RANGES else DEFAULT_RANGE, metrics


SCREENS = (
    device_screen(DEVICES, _list, is_shared=True),
    device_screen(
        DEVICES + "/keys",
        calling("POST telemetry/api-keys", _fleet, fields={"description": TEXT}, shown="made"),
        "POST",
    ),
    device_screen(
        DEVICES + "/keys/{key_id}",
        calling("DELETE telemetry/api-keys/{key_id}", _fleet),
        "DELETE",
    ),
    device_screen(ONE, _show),
    device_screen(
        ONE, calling(f"PUT {_DEVICE}", _show, fields={"friendly_name": TEXT_OR_NONE}), "POST"
    ),
    device_screen(ONE + "/delete", calling(f"DELETE {_DEVICE}", DEVICES), "POST"),
    device_screen(ONE + "/chart", _chart),
    device_screen(ONE + "/gaps", _gaps),
)
