"""Whose credential opens what, and what operators read and export."""

import csv
import io
import sqlite3
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import orjson
import psutil
import pyarrow.parquet as pq
import pytest

from tests.e2e.telemetry.api import BOOT_ID, HOUR_MS, Api, all_readings, code_of, now_ms
from tests.support.servers.processes import sandyard_serve


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "INVALID_API_KEY"),
        ({"X-API-Key": ""}, "INVALID_API_KEY"),
        ({"X-API-Key": "0" * 64}, "INVALID_API_KEY"),
        ({"X-API-Key": "é" * 64}, "INVALID_API_KEY"),
        ({"Authorization": "Bearer telemetry-token-of-the-tests"}, "INVALID_API_KEY"),
    ],
)
def test_a_device_endpoint_takes_device_keys_only(
    api: Api, headers: dict[str, str], code: str
) -> None:
    raw = {name.encode(): value.encode() for name, value in headers.items()}
    for path in ("/data", "/register"):
        answer = api.client.post(path, headers=raw, json={})
        assert code_of(answer) == (401, code)
        assert answer.headers["www-authenticate"] == "ApiKey"


def test_a_board_may_send_its_key_as_a_bearer_token(api: Api) -> None:
    key = api.key["api_key"]
    bearer = {"Authorization": f"Bearer {key}"}
    assert api.client.post("/data", headers=bearer, json={"readings": []}).status_code != 401
    twice = [*bearer.items(), *bearer.items()]
    assert code_of(api.client.post("/data", headers=twice)) == (400, "REPEATED_CREDENTIAL")
    for_a_proxy = {"Authorization": "Basic c29tZWJvZHk6ZWxzZQ=="} | api.device
    assert api.client.post("/data", headers=for_a_proxy, json={"readings": []}).status_code != 401


@pytest.mark.parametrize("path", ["/devices", "/api-keys", "/devices/AA:BB:CC:DD:EE:FF/latest"])
def test_an_operators_endpoint_takes_its_own_token_only(api: Api, path: str) -> None:
    for headers in ({}, api.device, api.server.track, api.server.admin):
        assert code_of(api.client.get(path, headers=headers)) == (401, "UNAUTHORIZED")


def test_a_key_is_shown_once_and_only_its_hash_is_kept(api: Api) -> None:
    key = api.new_key()
    assert len(bytes.fromhex(key["api_key"])) == 32
    listed = api.client.get("/api-keys", headers=api.operator, params={"limit": 100}).text
    assert key["key_id"] in listed
    assert key["api_key"] not in listed
    for file in api.server.data_dir.iterdir():
        if file.is_file():
            assert key["api_key"].encode() not in file.read_bytes()
    assert key["api_key"] not in api.server.log.read_text()


def test_a_name_is_given_taken_away_and_carried_by_later_readings(api: Api) -> None:
    def rename(name: Any) -> httpx.Response:
        return api.client.put(
            f"/devices/{api.hardware_id}", headers=api.operator, json={"friendly_name": name}
        )

    before, named, after = api.reading(), api.reading(), api.reading()
    api.send(before)
    assert rename("x" * 64).json()["friendly_name"] == "x" * 64
    api.send(named)
    assert rename(None).json()["friendly_name"] is None
    api.send(after)
    names = {each["batch_id"]: each["friendly_name"] for each in all_readings(api)}
    assert names == {
        before["batch_id"]: None,
        named["batch_id"]: "x" * 64,
        after["batch_id"]: None,
    }
    for bad in ("x" * 65, "", "a\nb", 5, "\x00"):
        assert code_of(rename(bad)) == (400, "INVALID_REQUEST")
    missing = api.client.put(f"/devices/{api.hardware_id}", headers=api.operator, json={})
    assert code_of(missing) == (400, "INVALID_REQUEST")


def test_unknown_ids_are_404_and_malformed_ones_400(api: Api) -> None:
    for path in ("", "/readings", "/latest", "/series?metric=t", "/export", "/sensors", "/gaps"):
        unknown = api.client.get(f"/devices/AA:BB:CC:00:00:99{path}", headers=api.operator)
        assert code_of(unknown) == (404, "DEVICE_NOT_FOUND")
        lower = api.client.get(f"/devices/aa:bb:cc:00:00:99{path}", headers=api.operator)
        assert code_of(lower) == (400, "INVALID_REQUEST")
    assert code_of(api.get("/latest")) == (404, "NO_READINGS")
    gone = api.client.delete(f"/api-keys/{uuid4()}", headers=api.operator)
    assert code_of(gone) == (404, "API_KEY_NOT_FOUND")


@pytest.mark.parametrize(
    ("path", "parameters", "code"),
    [
        ("/readings", {"limit": 0}, "INVALID_REQUEST"),
        ("/readings", {"limit": 1001}, "INVALID_REQUEST"),
        ("/readings", {"from": -1}, "INVALID_REQUEST"),
        ("/readings", {"to": 10**13}, "INVALID_REQUEST"),
        ("/readings", {"from": 2, "to": 1}, "INVALID_RANGE"),
        ("/readings", {"cursor": "abc"}, "INVALID_CURSOR"),
        ("/series", {}, "INVALID_REQUEST"),
        ("/series", {"metric": "Temp"}, "INVALID_REQUEST"),
        ("/series", {"metric": "t", "bucket": "0s"}, "INVALID_REQUEST"),
        ("/series", {"metric": "t", "bucket": "1w"}, "INVALID_REQUEST"),
        ("/series", {"metric": "t", "bucket": "1ms"}, "TOO_MANY_BUCKETS"),
        ("/export", {"format": "xlsx"}, "INVALID_REQUEST"),
    ],
)
def test_a_bad_parameter_is_refused(
    api: Api, path: str, parameters: dict[str, Any], code: str
) -> None:
    assert code_of(api.get(path, **parameters)) == (400, code)


def test_a_series_has_least_mean_greatest_and_number_by_bucket(api: Api) -> None:
    start = now_ms() // HOUR_MS * HOUR_MS - HOUR_MS
    values = {0: 10, 1: 20, 60_000: 5.5, 119_999: 6.5, 120_000: 1}
    api.send(
        *[api.reading(timestamp_ms=start + at, sensors={"t": v}) for at, v in values.items()],
        api.reading(timestamp_ms=start + 2, sensors={"other": 1}),
    ).raise_for_status()
    answer = api.get("/series", metric="t", **{"from": start, "to": start + 119_999}, bucket="1m")
    assert answer.json()["series"] == [
        {"start_ms": start, "min": 10, "mean": 15, "max": 20, "count": 2},
        {"start_ms": start + 60_000, "min": 5.5, "mean": 6, "max": 6.5, "count": 2},
    ]


def test_sensors_and_gaps_of_a_range(api: Api) -> None:
    end = now_ms()
    minutes = [n for n in range(120) if not 30 < n < 63]
    sent = [
        api.reading(
            timestamp_ms=end - n * 60_000, sensors={"t": n} if n < 60 else {"t": n, "old": n}
        )
        for n in minutes
    ]
    api.send(*sent).raise_for_status()
    within = {"from": end - 7_200_000, "to": end}
    found = api.get("/sensors", **within).json()["sensors"]
    assert found == [
        {"name": "old", "value": 63, "timestamp_ms": end - 63 * 60_000},
        {"name": "t", "value": 0, "timestamp_ms": end},
    ]
    gaps = api.get("/gaps", **within).json()
    assert gaps["usual_interval_ms"] == 60_000
    assert gaps["gaps"] == [{"from_ms": end - 63 * 60_000, "to_ms": end - 30 * 60_000}]
    assert api.get("/gaps", metric="old", **within).json()["gaps"] == [
        {"from_ms": end - 63 * 60_000, "to_ms": end}
    ]


def test_a_device_is_found_by_its_name_and_deleted(api: Api) -> None:
    path = f"/devices/{api.hardware_id}"
    name = f"Attic {api.hardware_id}"
    api.client.put(path, headers=api.operator, json={"friendly_name": name}).raise_for_status()
    query = {"q": name[:-3].upper()}
    listed = api.client.get("/devices", headers=api.operator, params=query).json()["devices"]
    assert [each["hardware_id"] for each in listed] == [api.hardware_id]
    deleted = api.client.delete(path, headers=api.operator)
    assert (deleted.status_code, deleted.json()["friendly_name"]) == (200, name)
    assert code_of(api.get("")) == (404, "DEVICE_NOT_FOUND")
    assert code_of(api.client.delete(path, headers=api.operator)) == (404, "DEVICE_NOT_FOUND")


def test_an_export_is_complete_in_both_formats(api: Api) -> None:
    sent = [
        api.reading(
            timestamp_ms=now_ms() - n,
            sensors={"t": n + 0.5} | ({"boot_id": n, "rare": -n} if n % 100 == 7 else {}),
        )
        for n in range(250)
    ]
    for start in range(0, 250, 100):
        api.send(*sent[start : start + 100]).raise_for_status()
    sent.sort(key=lambda each: (each["timestamp_ms"], each["batch_id"]))
    rows = list(csv.DictReader(io.StringIO(api.get("/export").text)))
    columns = {"t": "t", "rare": "rare", "sensor_boot_id": "boot_id"}
    exported = [
        (
            int(row["timestamp_ms"]),
            {name: float(row[column]) for column, name in columns.items() if row[column]},
        )
        for row in rows
    ]
    assert exported == [(each["timestamp_ms"], each["sensors"]) for each in sent]
    assert all(row["received_at"].endswith("Z") for row in rows)
    assert orjson.loads(rows[0]["sensor_status"]) == sent[0]["sensor_status"]
    answer = api.get("/export", format="parquet")
    assert answer.headers["content-disposition"].endswith('.parquet"')
    table = pq.read_table(io.BytesIO(answer.content)).to_pylist()
    assert [(row["batch_id"], dict(row["sensors"])) for row in table] == [
        (each["batch_id"], each["sensors"]) for each in sent
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("file_format", "count"),
    [
        ("parquet", 400_000),
        pytest.param("parquet", 1_000_000, marks=pytest.mark.torture),
        pytest.param("csv", 1_000_000, marks=pytest.mark.torture),
    ],
)
def test_many_readings_are_exported_in_constant_memory(
    tmp_path: Path, file_format: str, count: int
) -> None:
    with sandyard_serve(tmp_path / "data", environment={"PARTS": "telemetry"}) as server:
        api = Api(server)
        _fill(server.data_dir / "telemetry.db", api.hardware_id, count)
        process = psutil.Process(server.process.pid)
        url = f"/devices/{api.hardware_id}/export"
        size = 0
        early = peak = 0
        with api.client.stream(
            "GET", url, headers=api.operator, params={"format": file_format}
        ) as answer:
            for number, chunk in enumerate(answer.iter_bytes(1 << 20)):
                size += len(chunk)
                memory = _anonymous(process)
                peak = max(peak, memory)
                if number == 1:
                    early = memory
        api.client.close()
    assert early
    assert size > 10 * count
    assert peak - early < 60_000_000, (early, peak, size)


def _anonymous(process: psutil.Process) -> int:
    """The memory that is the process's own; the pages of the database file are the system's."""
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


def _fill(file: Path, hardware_id: str, count: int) -> None:
    first = now_ms() - count
    with sqlite3.connect(file) as database:
        database.execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
            "INSERT INTO device_readings "
            "(hardware_id, timestamp_ms, batch_id, boot_id, firmware_version, friendly_name, "
            "sensors, sensor_status) SELECT ?, ? + i, 'batch-' || i, ?, '1.0.16', NULL, "
            "'{\"t\":' || (i % 100) || '.5,\"r\":' || abs(random() % 1000000) || '}', "
            '\'{"bme280":"ok"}\' '
            "FROM n",
            (count, hardware_id, first, BOOT_ID),
        )
    database.close()
