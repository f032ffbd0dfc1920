"""Parquet, by pyarrow, which is imported only when such a file is requested."""

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from sandyard.kit.clock import rfc3339_from_ms
from sandyard.telemetry.model import READING_FIELDS, Reading

_TEXT = pa.string()
_OTHER_TYPES = {
    "timestamp_ms": pa.int64(),
    "sensors": pa.map_(_TEXT, pa.float64()),
    "sensor_status": pa.map_(_TEXT, _TEXT),
}
_SCHEMA = pa.schema([(name, _OTHER_TYPES.get(name, _TEXT)) for name in READING_FIELDS])


class ParquetSink:
    """A Parquet file whose bytes are taken as they are written."""

    def __init__(self) -> None:
        self._buffer = _Buffer()
        self._writer = pq.ParquetWriter(self._buffer, _SCHEMA, compression="zstd")

    def add(self, readings: Sequence[Reading]) -> bytes:
        if readings:
            self._writer.write_table(pa.table(_columns(readings), schema=_SCHEMA))
        return self._buffer.take()

    def finish(self) -> bytes:
        self._writer.close()
        return self._buffer.take()


class _Buffer(io.RawIOBase):
    """The writer's target; the writer only asks for its position."""

    def __init__(self) -> None:
        self._written: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        written = bytes(memoryview(data))  # type: ignore[arg-type]
        self._written.append(written)
        self._position += len(written)
        return len(written)

    def tell(self) -> int:
        return self._position

    def take(self) -> bytes:
        taken = b"".join(self._written)
        self._written.clear()
        return taken


def _columns(readings: Sequence[Reading]) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = {
        name: [getattr(reading, name) for reading in readings] for name in READING_FIELDS
    }
    columns["received_at"] = [
        None if reading.received_at is None else rfc3339_from_ms(reading.received_at)
        for reading in readings
    ]
    columns["sensors"] = [
        [(name, float(value)) for name, value in reading.sensors.items()] for reading in readings
    ]
    columns["sensor_status"] = [list(reading.sensor_status.items()) for reading in readings]
    return columns
