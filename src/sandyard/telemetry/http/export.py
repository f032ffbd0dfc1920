"""Readings as files, written portion by portion, so that memory use does not grow with their
number."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from sandyard.kit.clock import rfc3339_from_ms
from sandyard.telemetry.errors import FormatNotInstalledError
from sandyard.telemetry.model import READING_FIELDS, Reading

_ROW_GROUP = 20_000
_CSV_COLUMNS = tuple(name for name in READING_FIELDS if name != "sensors")

Portions = AsyncIterator[Sequence[Reading]]


@dataclass(frozen=True, slots=True)
class FileFormat:
    media_type: str
    described: dict[str, Any]
    """Its media type object in the OpenAPI document."""
    render: Callable[[Portions, Sequence[str]], AsyncIterator[bytes]]
    """From the readings and the names of all their sensors."""


async def csv_file(portions: Portions, sensors: Sequence[str]) -> AsyncIterator[bytes]:
    """One line per reading, with a column per sensor; the status of all is JSON in one column."""
    names = [f"sensor_{name}" if name in _CSV_COLUMNS else name for name in sensors]
    yield _csv_lines([(*_CSV_COLUMNS, *names)])
    async for readings in portions:
        rows = (_csv_row(reading, sensors) for reading in readings)
        yield await asyncio.to_thread(_csv_lines, rows)


async def parquet_file(portions: Portions, _sensors: Sequence[str]) -> AsyncIterator[bytes]:
    """One row per reading; sensors and their status are maps. One row group at a time is in
    memory."""
    from sandyard.telemetry.http.parquet import ParquetSink

    sink = ParquetSink()
    waiting: list[Reading] = []
    async for readings in portions:
        waiting += readings
        if len(waiting) >= _ROW_GROUP:
            yield await asyncio.to_thread(sink.add, waiting)
            waiting = []
    yield await asyncio.to_thread(sink.add, waiting)
    yield await asyncio.to_thread(sink.finish)


_CSV_EXAMPLE = (
    ",".join((*_CSV_COLUMNS, "temperature")) + "\r\n"
    "AA:BB:CC:DD:EE:01,1794830401000,2026-11-16T12:00:02Z,8f14e45f-ceea-467f-a8b1-1c2d3e4f5a6b,"
    'c9f0f895-fb98-4b91-a1f2-7c3d4e5f6a7b,1.2.0,lab bench,"{""temperature"":""ok""}",21.5\r\n'
)
FORMATS = {
    "csv": FileFormat(
        "text/csv", {"schema": {"type": "string"}, "example": _CSV_EXAMPLE}, csv_file
    ),
    "parquet": FileFormat(
        "application/vnd.apache.parquet",
        {"schema": {"type": "string", "format": "binary"}},
        parquet_file,
    ),
}


def require_format(name: str) -> FileFormat:
    if name == "parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise FormatNotInstalledError from error
    return FORMATS[name]


def _csv_row(reading: Reading, sensors: Sequence[str]) -> tuple[Any, ...]:
    return (
        reading.hardware_id,
        reading.timestamp_ms,
        None if reading.received_at is None else rfc3339_from_ms(reading.received_at),
        reading.batch_id,
        reading.boot_id,
        _no_formula(reading.firmware_version),
        _no_formula(reading.friendly_name),
        orjson.dumps(reading.sensor_status).decode(),
        *(reading.sensors.get(name) for name in sensors),
    )


def _no_formula(text: str | None) -> str | None:
    """Escape a text that a spreadsheet would treat as a formula."""
    return f"'{text}" if text and text[0] in "=+-@" else text


def _csv_lines(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
