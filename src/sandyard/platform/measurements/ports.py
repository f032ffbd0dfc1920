"""What measurements need of an engine."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from sandyard.kit.paging import Page
from sandyard.platform.measurements.model import Measurement, MeasurementBucket


class MeasurementStore(Protocol):
    async def add(self, measurements: Sequence[Measurement]) -> None: ...

    async def page(self, sandbox_id: str, *, limit: int, cursor: str | None) -> Page[Measurement]:
        """The sandbox's samples, the latest first."""

    async def buckets(
        self, sandbox_id: str, *, start: datetime, end: datetime, bucket_sec: int
    ) -> Sequence[MeasurementBucket]:
        """Samples from `start` up to before `end`, by bucket, in order of time."""

    async def remove_before(self, moment: datetime, *, limit: int) -> int:
        """Remove up to `limit` older samples; returns how many."""
