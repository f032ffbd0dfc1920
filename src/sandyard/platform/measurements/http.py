"""Calls of accounts about what their sandboxes take."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import InvalidError
from sandyard.kit.http import errors
from sandyard.platform.access import OPENED_BY_ACCOUNTS, AccessGuard
from sandyard.platform.fields import Moment
from sandyard.platform.measurements.ports import MeasurementStore
from sandyard.platform.principal import Principal
from sandyard.platform.sandboxes.http import SandboxId
from sandyard.platform.sandboxes.service import Sandboxes

_MAX_BUCKETS = 10_000
_UNITS_SEC = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class BucketAnswer(BaseModel):
    start: datetime
    cpu_utilization: float = Field(description="Percent of its processors, mean")
    memory_utilization: float = Field(description="Percent of its memory, mean")
    storage_utilization: float = Field(description="Percent of its storage, mean")
    count: int = Field(description="Samples in the bucket")


class MetricsAnswer(BaseModel):
    sandbox_id: str
    bucket_seconds: int
    metrics: list[BucketAnswer]


class InvalidSpanError(InvalidError):
    """`from` must be before `to`, with at most 10,000 buckets between them."""

    code = "INVALID_SPAN"


def create_metrics_router(
    store: MeasurementStore,
    sandboxes: Sandboxes,
    guard: AccessGuard,
    *,
    clock: Clock,
    prefix: str,
) -> APIRouter:
    router = APIRouter(prefix=f"{prefix}/sandboxes", tags=["sandboxes"])
    Caller = Annotated[Principal, Depends(guard.account)]  # noqa: N806 - a type

    @router.get(
        "/{sandbox_id}/metrics",
        summary="What a sandbox takes",
        response_model=MetricsAnswer,
        responses=errors(400, 401, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def metrics(
        caller: Caller,
        sandbox_id: SandboxId,
        start: Annotated[Moment | None, Query(alias="from")] = None,
        end: Annotated[Moment | None, Query(alias="to")] = None,
        bucket: Annotated[str, Query(pattern=r"^[1-9][0-9]{0,5}[smhd]$")] = "1m",
    ) -> Any:
        """Sampled from its real processes; by bucket, of the last hour if no span is given."""
        await sandboxes.get(sandbox_id, account_id=caller.account_id)
        end = end or utc_time(clock.now()) + timedelta(seconds=1)
        try:
            start = (start or end - timedelta(hours=1)).astimezone(UTC)
            end = end.astimezone(UTC)
        except OverflowError as error:
            raise InvalidSpanError from error
        bucket_sec = _seconds(bucket)
        span = (end - start).total_seconds()
        if span <= 0 or span / bucket_sec > _MAX_BUCKETS:
            raise InvalidSpanError
        found = await store.buckets(sandbox_id, start=start, end=end, bucket_sec=bucket_sec)
        shown = [BucketAnswer.model_validate(each, from_attributes=True) for each in found]
        return MetricsAnswer(sandbox_id=sandbox_id, bucket_seconds=bucket_sec, metrics=shown)

    return router


def _seconds(bucket: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(\D)", bucket).groups()  # type: ignore[union-attr]
    return int(number) * _UNITS_SEC[unit]
