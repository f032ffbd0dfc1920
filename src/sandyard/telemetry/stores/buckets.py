"""Aggregates a series reading by reading, for engines that can't do it themselves."""

from sandyard.telemetry.model import Bucket, Number


class Buckets:
    def __init__(self, bucket_ms: int) -> None:
        self._bucket_ms = bucket_ms
        self._found: dict[int, tuple[Number, Number, Number, int]] = {}

    def add(self, timestamp_ms: int, value: Number) -> None:
        start = timestamp_ms // self._bucket_ms * self._bucket_ms
        least, most, total, number = self._found.get(start, (value, value, 0, 0))
        self._found[start] = (min(least, value), max(most, value), total + value, number + 1)

    def in_order(self) -> list[Bucket]:
        return [
            Bucket(start, least, total / number, most, number)
            for start, (least, most, total, number) in sorted(self._found.items())
        ]
