"""The answers about measurements, as the OpenAPI document describes them."""

from datetime import datetime

from pydantic import BaseModel, Field

from sandyard.kit.http.schemas import PageAnswer, example
from sandyard.platform.http.fields import Answer


class MetricsBucketAnswer(BaseModel):
    start: datetime
    cpu_utilization: float = Field(description="Percent of its processors, mean")
    memory_utilization: float = Field(description="Percent of its memory, mean")
    storage_utilization: float = Field(description="Percent of its storage, mean")
    count: int = Field(description="Samples in the bucket")


class SampleAnswer(Answer):
    model_config = example(
        metric_id="mtr-3h6k9n2q5t8w",
        sandbox_id="sbx-1m4p7s0v3y6b9e2hk",
        timestamp="2026-10-30T09:00:15Z",
        cpu_utilization=12.5,
        memory_utilization=40.0,
        storage_utilization=3.25,
    )

    metric_id: str
    sandbox_id: str
    timestamp: datetime
    cpu_utilization: float = Field(description="Percent of its processors")
    memory_utilization: float = Field(description="Percent of its memory")
    storage_utilization: float = Field(description="Percent of its storage")


class SamplePage(PageAnswer):
    samples: list[SampleAnswer]
    next_cursor: str | None


class MetricsAnswer(BaseModel):
    model_config = example(
        sandbox_id="sbx-1m4p7s0v3y6b9e2hk",
        bucket_seconds=60,
        metrics=[
            {
                "start": "2026-10-30T09:00:00Z",
                "cpu_utilization": 12.5,
                "memory_utilization": 40.0,
                "storage_utilization": 3.25,
                "count": 6,
            }
        ],
    )

    sandbox_id: str
    bucket_seconds: int
    metrics: list[MetricsBucketAnswer]
