"""Operators' calls for readings."""

import re
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from sandyard.kit.clock import Clock, now_ms
from sandyard.kit.http.routes import GuardedRoutes
from sandyard.kit.http.schemas import Cursor
from sandyard.kit.http.security import BearerGuard
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.kit.patterns import pattern
from sandyard.telemetry.http import schemas
from sandyard.telemetry.http.export import FORMATS, require_format
from sandyard.telemetry.http.operators import HardwareId, operator_routes
from sandyard.telemetry.intake import NAME
from sandyard.telemetry.service import Telemetry

_LONGEST_MS = 9_999_999_999_999
_DAY_MS = 86_400_000
_BUCKET = pattern(
    r"^[1-9][0-9]{0,9}(ms|s|m|h|d)?$", "must be a number and a unit, such as 30s, 5m, 1h or 1d"
)
_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": _DAY_MS}

_MILLISECONDS = "Epoch milliseconds, included"
From = Annotated[int | None, Query(alias="from", ge=0, le=_LONGEST_MS, description=_MILLISECONDS)]
To = Annotated[int | None, Query(alias="to", ge=0, le=_LONGEST_MS, description=_MILLISECONDS)]

_FILE_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A row per reading, the oldest first",
        "content": {each.media_type: each.described for each in FORMATS.values()},
    }
}


def create_readings_router(telemetry: Telemetry, guard: BearerGuard, *, clock: Clock) -> APIRouter:
    routes = operator_routes(guard)
    _add_readings(routes, telemetry)
    _add_series(routes, telemetry, clock)
    _add_sensors(routes, telemetry, clock)
    _add_export(routes, telemetry)
    return routes.router


def _add_readings(routes: GuardedRoutes, telemetry: Telemetry) -> None:
    @routes.get(
        "/devices/{hardware_id}/readings",
        "List readings",
        404,
        response_class=Response,
        answers={200: {"model": schemas.ReadingPage}},
    )
    async def list_readings(
        hardware_id: HardwareId,
        from_ms: From = None,
        to_ms: To = None,
        limit: Annotated[
            int, Query(ge=1, le=1000, description="Maximum number of items")
        ] = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Response:
        """Newest first, by their own timestamps. Readings that arrive during paging do not shift
        the pages."""
        page = await telemetry.list_readings(
            hardware_id, from_ms=from_ms, to_ms=to_ms, limit=limit, cursor=cursor
        )
        readings = [schemas.reading_answer(reading) for reading in page.items]
        return _json({"readings": readings, "next_cursor": page.next_cursor})

    @routes.get(
        "/devices/{hardware_id}/latest",
        "Get the latest reading",
        404,
        response_class=Response,
        answers={200: {"model": schemas.ReadingAnswer}},
    )
    async def get_latest_reading(hardware_id: HardwareId) -> Response:
        """The reading with the latest `timestamp_ms`, whenever it arrived."""
        return _json(schemas.reading_answer(await telemetry.latest(hardware_id)))


def _add_series(routes: GuardedRoutes, telemetry: Telemetry, clock: Clock) -> None:
    @routes.get("/devices/{hardware_id}/series", "Get one metric over time", 404)
    async def get_series(
        hardware_id: HardwareId,
        metric: Annotated[str, Query(pattern=NAME, description="A sensor's name")],
        from_ms: From = None,
        to_ms: To = None,
        bucket: Annotated[
            str, Query(pattern=_BUCKET, description="Such as 30s, 5m, 1h, 1d; or milliseconds")
        ] = "1h",
    ) -> schemas.SeriesAnswer:
        """Minimum, mean, maximum and count per bucket; by default for the last day."""
        from_ms, to_ms = _last_day(from_ms, to_ms, clock)
        bucket_ms = _milliseconds(bucket)
        found = await telemetry.series(
            hardware_id, metric, from_ms=from_ms, to_ms=to_ms, bucket_ms=bucket_ms
        )
        return schemas.SeriesAnswer(
            hardware_id=hardware_id,
            metric=metric,
            bucket_ms=bucket_ms,
            series=[schemas.SeriesBucketAnswer.of(each) for each in found],
        )


def _add_sensors(routes: GuardedRoutes, telemetry: Telemetry, clock: Clock) -> None:
    @routes.get("/devices/{hardware_id}/sensors", "List a device's sensors", 404)
    async def list_sensors(
        hardware_id: HardwareId, from_ms: From = None, to_ms: To = None
    ) -> schemas.SensorsAnswer:
        """Every sensor that has a reading in the range, with its latest value there."""
        found = await telemetry.sensors(hardware_id, from_ms=from_ms, to_ms=to_ms)
        sensors = [schemas.SensorAnswer.of(each) for each in found]
        return schemas.SensorsAnswer(hardware_id=hardware_id, sensors=sensors)

    @routes.get("/devices/{hardware_id}/gaps", "Find missing readings", 404)
    async def find_gaps(
        hardware_id: HardwareId,
        metric: Annotated[
            str | None, Query(pattern=NAME, description="A sensor's name; any sensor if absent")
        ] = None,
        from_ms: From = None,
        to_ms: To = None,
    ) -> schemas.GapsAnswer:
        """When the device, or one sensor, was silent for longer than usual; by default in the last
        day."""
        from_ms, to_ms = _last_day(from_ms, to_ms, clock)
        found = await telemetry.gaps(hardware_id, metric, from_ms=from_ms, to_ms=to_ms)
        return schemas.GapsAnswer(
            hardware_id=hardware_id,
            metric=metric,
            from_ms=found.within.from_ms,
            to_ms=found.within.to_ms,
            usual_interval_ms=found.usual_interval_ms,
            gaps=[schemas.GapAnswer.of(each) for each in found.gaps],
        )


def _add_export(routes: GuardedRoutes, telemetry: Telemetry) -> None:
    @routes.get(
        "/devices/{hardware_id}/export",
        "Export all readings",
        404,
        response_class=Response,
        answers=_FILE_ANSWER,
    )
    async def export_readings(
        hardware_id: HardwareId,
        file_format: Annotated[
            Literal["csv", "parquet"], Query(alias="format", description="Format of the file")
        ] = "csv",
        from_ms: From = None,
        to_ms: To = None,
    ) -> StreamingResponse:
        """Streamed, in any number. An interrupted export ends without its last chunk."""
        chosen = require_format(file_format)
        within = {"from_ms": from_ms, "to_ms": to_ms}
        sensors = await telemetry.sensors(hardware_id, **within) if file_format == "csv" else []
        portions = await telemetry.export(hardware_id, **within)
        name = f"{hardware_id.replace(':', '')}.{file_format}"
        return StreamingResponse(
            chosen.render(portions, [each.name for each in sensors]),
            media_type=chosen.media_type,
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )


def _last_day(from_ms: int | None, to_ms: int | None, clock: Clock) -> tuple[int, int]:
    """The range; by default up to now, and of a day."""
    to_ms = now_ms(clock) if to_ms is None else to_ms
    return max(0, to_ms - _DAY_MS) if from_ms is None else from_ms, to_ms


def _json(body: object) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")


def _milliseconds(bucket: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(\D*)", bucket).groups()  # type: ignore[union-attr]
    return int(number) * _UNITS_MS[unit]
