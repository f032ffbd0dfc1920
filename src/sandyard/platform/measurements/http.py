"""Accounts' calls for the metrics of their sandboxes."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import InvalidError
from sandyard.kit.http.schemas import Documented, PageAnswer, Paging, eg
from sandyard.kit.patterns import pattern
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes
from sandyard.platform.http.fields import Answer, Timestamp
from sandyard.platform.measurements.ports import MeasurementStore
from sandyard.platform.sandboxes.http import SandboxId
from sandyard.platform.sandboxes.service import Sandboxes


class MetricsBucketAnswer(BaseModel):
    start: datetime
    cpu_utilization: float = Field(description="Percent of its processors, mean")
    memory_utilization: float = Field(description="Percent of its memory, mean")
    storage_utilization: float = Field(description="Percent of its storage, mean")
    count: int = Field(description="Samples in the bucket")


class SampleAnswer(Answer):
    metric_id: str = eg("mtr-3h6k9n2q5t8w")
    sandbox_id: str = eg("sbx-1m4p7s0v3y6b9e2hk")
    timestamp: datetime = eg("2026-10-30T09:00:15Z")
    cpu_utilization: float = eg(12.5, description="Percent of its processors")
    memory_utilization: float = eg(40.0, description="Percent of its memory")
    storage_utilization: float = eg(3.25, description="Percent of its storage")


class SamplePage(PageAnswer):
    samples: list[SampleAnswer]
    next_cursor: str | None


class MetricsAnswer(Documented):
    sandbox_id: str = eg("sbx-1m4p7s0v3y6b9e2hk")
    bucket_seconds: int = eg(60)
    metrics: list[MetricsBucketAnswer] = eg(
        [
            {
                "start": "2026-10-30T09:00:00Z",
                "cpu_utilization": 12.5,
                "memory_utilization": 40.0,
                "storage_utilization": 3.25,
                "count": 6,
            }
        ]
    )


_MAX_BUCKETS = 10_000
_UNITS_SEC = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class InvalidSpanError(InvalidError):
    """`from` must be before `to`, with at most 10,000 buckets between them."""


_BUCKET = pattern(
    r"^[1-9][0-9]{0,5}[smhd]$", "must be a number and a unit, such as 30s, 5m, 1h or 1d"
)


def create_metrics_router(
    store: MeasurementStore, sandboxes: Sandboxes, guard: AccessGuard, *, clock: Clock
) -> APIRouter:
    routes = account_routes(guard, "/sandboxes", tag="sandboxes")

    @routes.get("/{sandbox_id}/metrics", "Get a sandbox's metrics", 404)
    async def get_sandbox_metrics(
        caller: Caller,
        sandbox_id: SandboxId,
        start: Annotated[
            Timestamp | None, Query(alias="from", description="Samples from then on")
        ] = None,
        end: Annotated[
            Timestamp | None, Query(alias="to", description="Samples before then")
        ] = None,
        bucket: Annotated[str, Query(pattern=_BUCKET, description="Such as 15s, 5m or 1h")] = "1m",
    ) -> MetricsAnswer:
        """Sampled from its processes and averaged by bucket; by default for the last hour."""
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
        shown = [MetricsBucketAnswer.model_validate(each, from_attributes=True) for each in found]
        return MetricsAnswer(sandbox_id=sandbox_id, bucket_seconds=bucket_sec, metrics=shown)

    @routes.get("/{sandbox_id}/metrics/samples", "List a sandbox's samples", 404)
    async def list_sandbox_samples(
        caller: Caller, sandbox_id: SandboxId, paging: Paging
    ) -> SamplePage:
        """Each with its id, the latest first."""
        await sandboxes.get(sandbox_id, account_id=caller.account_id)
        page = await store.page(sandbox_id, **paging)
        return SamplePage.of(page, SampleAnswer.of)

    return routes.router


def _seconds(bucket: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(\D)", bucket).groups()  # type: ignore[union-attr]
    return int(number) * _UNITS_SEC[unit]
