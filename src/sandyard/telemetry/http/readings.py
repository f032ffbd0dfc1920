"""Calls of operators for what the devices have sent."""

import re
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from sandyard.kit.clock import Clock
from sandyard.kit.http import BearerGuard, errors, opened_by
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.telemetry.http.export import FORMATS, require_format
from sandyard.telemetry.http.operators import (
    OPERATOR_TOKEN,
    Cursor,
    HardwareId,
    operators_router,
)
from sandyard.telemetry.http.schemas import (
    BucketAnswer,
    ReadingAnswer,
    ReadingPage,
    SeriesAnswer,
    reading_answer,
)
from sandyard.telemetry.intake import NAME
from sandyard.telemetry.service import Telemetry

_BY_OPERATORS = opened_by(OPERATOR_TOKEN)

_LONGEST_MS = 9_999_999_999_999
_DAY_MS = 86_400_000
_BUCKET = r"^[1-9][0-9]{0,9}(ms|s|m|h|d)?$"
_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": _DAY_MS}

_MILLISECONDS = "Epoch milliseconds, included"
From = Annotated[int | None, Query(alias="from", ge=0, le=_LONGEST_MS, description=_MILLISECONDS)]
To = Annotated[int | None, Query(alias="to", ge=0, le=_LONGEST_MS, description=_MILLISECONDS)]


def create_readings_router(
    telemetry: Telemetry, guard: BearerGuard, *, clock: Clock, prefix: str
) -> APIRouter:
    router = operators_router(guard, prefix=prefix)

    @router.get(
        "/devices/{hardware_id}/readings",
        summary="List readings",
        response_class=Response,
        responses={200: {"model": ReadingPage}, **errors(400, 401, 404, 503)},
        openapi_extra=_BY_OPERATORS,
    )
    async def list_readings(
        hardware_id: HardwareId,
        from_ms: From = None,
        to_ms: To = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Any:
        """The newest first, by their own time. Readings that arrive meanwhile move no others."""
        page = await telemetry.list_readings(
            hardware_id, from_ms=from_ms, to_ms=to_ms, limit=limit, cursor=cursor
        )
        readings = [reading_answer(reading) for reading in page.items]
        return _json({"readings": readings, "next_cursor": page.next_cursor})

    @router.get(
        "/devices/{hardware_id}/latest",
        summary="The latest reading",
        response_class=Response,
        responses={200: {"model": ReadingAnswer}, **errors(400, 401, 404, 503)},
        openapi_extra=_BY_OPERATORS,
    )
    async def latest(hardware_id: HardwareId) -> Any:
        """The one with the greatest `timestamp_ms`, whenever it came in."""
        return _json(reading_answer(await telemetry.latest(hardware_id)))

    @router.get(
        "/devices/{hardware_id}/series",
        summary="One metric over time",
        response_model=SeriesAnswer,
        responses=errors(400, 401, 404, 503),
        openapi_extra=_BY_OPERATORS,
    )
    async def series(
        hardware_id: HardwareId,
        metric: Annotated[str, Query(pattern=NAME, description="A sensor's name")],
        from_ms: From = None,
        to_ms: To = None,
        bucket: Annotated[
            str, Query(pattern=_BUCKET, description="Such as 30s, 5m, 1h, 1d; or milliseconds")
        ] = "1h",
    ) -> Any:
        """Least, mean, greatest value and their number, by bucket; by default of the last day."""
        to_ms = int(clock.now() * 1000) if to_ms is None else to_ms
        from_ms = max(0, to_ms - _DAY_MS) if from_ms is None else from_ms
        bucket_ms = _milliseconds(bucket)
        found = await telemetry.series(
            hardware_id, metric, from_ms=from_ms, to_ms=to_ms, bucket_ms=bucket_ms
        )
        return SeriesAnswer(
            hardware_id=hardware_id,
            metric=metric,
            bucket_ms=bucket_ms,
            series=[BucketAnswer.of(each) for each in found],
        )

    @router.get(
        "/devices/{hardware_id}/export",
        summary="All readings as a file",
        response_class=Response,
        responses={
            200: {
                "description": "A row per reading, the oldest first",
                "content": {
                    each.media_type: {"schema": {"type": "string", "format": "binary"}}
                    for each in FORMATS.values()
                },
            },
            **errors(400, 401, 404, 503),
        },
        openapi_extra=_BY_OPERATORS,
    )
    async def export(
        hardware_id: HardwareId,
        file_format: Annotated[Literal["csv", "parquet"], Query(alias="format")] = "csv",
        from_ms: From = None,
        to_ms: To = None,
    ) -> Any:
        """Streamed, however many there are. One that broke off ends without its last chunk."""
        chosen = require_format(file_format)
        portions = await telemetry.export(hardware_id, from_ms=from_ms, to_ms=to_ms)
        name = f"{hardware_id.replace(':', '')}.{file_format}"
        return StreamingResponse(
            chosen.render(portions),
            media_type=chosen.media_type,
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    return router


def _json(body: object) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")


def _milliseconds(bucket: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(\D*)", bucket).groups()  # type: ignore[union-attr]
    return int(number) * _UNITS_MS[unit]
