"""The latest reading and an hour of them, among a million readings beside among ten thousand."""

import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import asyncpg
import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from benchmarks.loops import run
from benchmarks.readings import BOOT_ID, EVERY_MS, FIRMWARE_VERSION, hardware_id
from benchmarks.report import Figure, Measured, Say
from sandyard.kit import ids
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import SystemClock, rfc3339_from_ms
from sandyard.kit.sql.database import Database, PostgresDatabase, SqliteDatabase
from sandyard.telemetry.metrics import TelemetryMetrics
from sandyard.telemetry.model import Registration, Retention, decide_registration, marker_expires_at
from sandyard.telemetry.service import Telemetry
from sandyard.telemetry.stores.sql import MIGRATIONS, SqlTelemetryStore
from tests.support.storage.engines import create_database, postgres_server

_DAY_SEC = 24 * 3600
_HOUR_MS = 3_600_000
_IN_AN_HOUR = _HOUR_MS // EVERY_MS
_LIMIT = 1000
_WARM_UPS = 50
_SAMPLES = 300
_MOST = 1.3

_BATCH_ID = "hardware_id || '_' || :boot_id || '_' || at || '_' || (at + :every)"
_MADE_SQLITE = """
WITH RECURSIVE
    device(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM device WHERE n + 1 < :devices),
    place(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM place WHERE n + 1 < :each),
    made(hardware_id, at) AS (
        SELECT printf('02:00:00:00:00:%02X', device.n), :first + place.n * :every
        FROM device CROSS JOIN place)
"""
_MADE_POSTGRES = """
WITH made AS (
    SELECT '02:00:00:00:00:' || upper(lpad(to_hex(device), 2, '0')) AS hardware_id,
        CAST(:first AS bigint) + place * CAST(:every AS bigint) AS at
    FROM generate_series(0, CAST(:devices AS int) - 1) AS device,
        generate_series(0, CAST(:each AS int) - 1) AS place)
"""
_FILL_READINGS = f"""
INSERT INTO telemetry.device_readings (hardware_id, timestamp_ms, batch_id, boot_id,
    firmware_version, sensors, sensor_status)
{{made}}
SELECT hardware_id, at, {_BATCH_ID}, :boot_id, :firmware_version, :sensors, :sensor_status
FROM made
"""
_FILL_MARKERS = f"""
INSERT INTO telemetry.processed_batches (batch_id, hardware_id, received_at, content_hash,
    expiration_time)
{{made}}
SELECT {_BATCH_ID}, hardware_id, :received_at, :content_hash, :expiration_time FROM made
"""
_SENSORS = (
    '{"bme280_temp_c":22.5,"ds18b20_temp_c":21.8,"humidity_pct":45.2,"pressure_hpa":1013.25,'
    '"soil_moisture_pct":62.3}'
)
_STATUS = '{"bme280":"ok","ds18b20":"ok","soil_moisture":"ok"}'


@dataclass(frozen=True, slots=True)
class _Fleet:
    """So many devices with so many readings each, one every five seconds up to now."""

    devices: int
    each: int
    first_ms: int

    @classmethod
    def of(cls, devices: int, each: int) -> "_Fleet":
        return cls(devices, each, int(time.time() * 1000) - each * EVERY_MS)

    @property
    def readings(self) -> int:
        return self.devices * self.each


@dataclass(frozen=True, slots=True)
class _Filled:
    fleet: _Fleet
    telemetry: Telemetry

    async def latest(self, chance: random.Random) -> None:
        """Raises RuntimeError unless the reading is the device's last."""
        found = await self.telemetry.latest(hardware_id(chance.randrange(self.fleet.devices)))
        if found.timestamp_ms != self.fleet.first_ms + (self.fleet.each - 1) * EVERY_MS:
            raise RuntimeError("that was not the latest reading")

    async def hour(self, chance: random.Random) -> None:
        """Any hour of any device. Raises RuntimeError unless all of it was found."""
        first = chance.randrange(self.fleet.each - _IN_AN_HOUR + 1)
        from_ms = self.fleet.first_ms + first * EVERY_MS
        page = await self.telemetry.list_readings(
            hardware_id(chance.randrange(self.fleet.devices)),
            from_ms=from_ms,
            to_ms=from_ms + _HOUR_MS - 1,
            limit=_LIMIT,
        )
        if len(page.items) != _IN_AN_HOUR:
            raise RuntimeError(f"{len(page.items)} readings in an hour of {_IN_AN_HOUR}")


_ASKED: Mapping[str, Callable[[_Filled, random.Random], Awaitable[None]]] = {
    "latest": _Filled.latest,
    "an hour": _Filled.hour,
}


def measure(folder: Path, say: Say) -> Measured:
    fleets = (_Fleet.of(10, 1_000), _Fleet.of(100, 10_000))
    small, large = fleets
    with postgres_server(folder / "postgres") as postgres_url:
        figures = [
            *run(_measure("SQLite", folder, None, fleets, say)),
            *run(_measure("PostgreSQL", folder, postgres_url, fleets, say)),
        ]
    rows = f"readings {small.readings:,} of {small.devices} devices and "
    return Measured(figures, rows + f"{large.readings:,} of {large.devices}")


async def _measure(
    title: str, folder: Path, postgres_url: str | None, fleets: Sequence[_Fleet], say: Say
) -> list[Figure]:
    async with AsyncExitStack() as stack:
        filled: list[_Filled] = []
        for fleet in fleets:
            say(f"readings-rows: {title}, storing {fleet.readings:,} readings")
            path = folder / f"{fleet.readings}.db"
            url = await create_database(postgres_url) if postgres_url else None
            database: Database = (
                PostgresDatabase(sa.make_url(url), pool_size=1)
                if url
                else SqliteDatabase(path, schema=MIGRATIONS.part)
            )
            stack.push_async_callback(database.close)
            filled.append(await _fill(database, fleet))
            if url:
                await _settle(url)
        say(f"readings-rows: {title}, {_SAMPLES} times {' and '.join(_ASKED)}, in turn")
        return _figures(title, fleets, await _compare(filled))


async def _compare(filled: Sequence[_Filled]) -> Mapping[str, tuple[float, float]]:
    """Seconds for each question, among the few and among the many; all in turn, so that what
    else the machine does meets them all alike, and each as often first as second."""
    chance = random.Random(4)
    samples: dict[str, tuple[list[float], list[float]]] = {what: ([], []) for what in _ASKED}
    for number in range(_WARM_UPS + _SAMPLES):
        for what, ask in _ASKED.items():
            pairs = list(zip(filled, samples[what], strict=True))
            for each, times in pairs if number % 2 else reversed(pairs):
                times.append(await _seconds(ask(each, chance)))
    return {
        what: (median(small[_WARM_UPS:]), median(large[_WARM_UPS:]))
        for what, (small, large) in samples.items()
    }


async def _seconds(answer: Awaitable[None]) -> float:
    started = time.perf_counter()
    await answer
    return time.perf_counter() - started


def _figures(
    title: str, fleets: Sequence[_Fleet], medians: Mapping[str, tuple[float, float]]
) -> list[Figure]:
    few, many = (f"{fleet.readings:,}" for fleet in fleets)
    figures: list[Figure] = []
    for what, (small_sec, large_sec) in medians.items():
        figures += [
            Figure.at_most(
                f"{what} among {many} readings ÷ among {few}, {title}", large_sec / small_sec, _MOST
            ),
            Figure(f"  among {many}", f"{large_sec * 1000:.2f} ms"),
            Figure(f"  among {few}", f"{small_sec * 1000:.2f} ms"),
        ]
    return figures


async def _settle(url: str) -> None:
    """What autovacuum and the next checkpoint would do in time."""
    connection = await asyncpg.connect(url)
    try:
        for statement in ("VACUUM ANALYZE", "CHECKPOINT"):
            await connection.execute(statement, timeout=120)
    finally:
        await connection.close()


async def _fill(database: Database, fleet: _Fleet) -> _Filled:
    """Devices by the store, readings and markers by bulk SQL."""
    await MIGRATIONS.upgrade(database)
    retention = Retention(90 * _DAY_SEC * 1000)
    store = SqlTelemetryStore(database, retention=retention)
    now_ms = int(time.time() * 1000)
    for device in range(fleet.devices):
        registration = Registration(
            hardware_id=hardware_id(device),
            boot_id=BOOT_ID,
            firmware_version=FIRMWARE_VERSION,
            capabilities={},
            friendly_name=None,
        )
        transition = decide_registration(
            None,
            registration,
            confirmation_id=ids.uuid4(),
            cause=Cause("key:bench", now_ms),
        )
        assert transition is not None  # noqa: S101 - the device is new
        await store.apply(transition)
    values = {
        "devices": fleet.devices,
        "each": fleet.each,
        "first": fleet.first_ms,
        "every": EVERY_MS,
        "boot_id": BOOT_ID,
    }
    of_readings = {
        "firmware_version": FIRMWARE_VERSION,
        "sensors": _SENSORS,
        "sensor_status": _STATUS,
    }
    of_markers = {
        "received_at": rfc3339_from_ms(now_ms),
        "content_hash": "0" * 32,
        "expiration_time": marker_expires_at(now_ms) // 1000,
    }
    made = _MADE_SQLITE if database.name == "sqlite" else _MADE_POSTGRES

    def work(connection: sa.Connection) -> None:
        for statement, more in ((_FILL_READINGS, of_readings), (_FILL_MARKERS, of_markers)):
            connection.execute(sa.text(statement.format(made=made)), values | more)

    await database.write(work)
    telemetry = Telemetry(
        store,
        clock=SystemClock(),
        make_confirmation_id=ids.uuid4,
        metrics=TelemetryMetrics(CollectorRegistry()),
        retention=retention,
    )
    return _Filled(fleet, telemetry)
