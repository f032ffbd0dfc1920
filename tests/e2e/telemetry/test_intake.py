"""Registrations and readings, good and bad, each accounted for."""

from typing import Any
from uuid import uuid4

import httpx
import orjson
import pytest

from tests.e2e.telemetry.api import Api, code_of
from tests.support.servers.processes import ServerProcess


def test_a_process_may_serve_telemetry_alone(telemetry_server: ServerProcess) -> None:
    answer = httpx.post(
        f"{telemetry_server.url}/v1/allocate", headers=telemetry_server.track, timeout=60
    )
    assert code_of(answer) == (404, "NOT_FOUND")
    assert not (telemetry_server.data_dir / "broker.db").exists()


def test_registering_again_keeps_the_confirmation_id(api: Api) -> None:
    first = api.register().json()
    again = api.register(boot_id=str(uuid4()), firmware_version="1.0.17").json()
    assert first == again
    assert first["status"] == "registered"
    assert first["hardware_id"] == api.hardware_id
    shown = api.get("").json()
    assert shown["firmware_version"] == "1.0.17"
    assert shown["confirmation_id"] == first["confirmation_id"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hardware_id", "aa:bb:cc:dd:ee:ff"),
        ("hardware_id", "AA-BB-CC-DD-EE-FF"),
        ("hardware_id", "AA:BB:CC:DD:EE"),
        ("hardware_id", None),
        ("boot_id", "c9a646d3-9c61-1cb7-bfcd-ee2522c8f633"),
        ("boot_id", "7c9e6679-7425-50de-944b-e07fc1f90ae7"),
        ("boot_id", "7c9e6679-7425-40de-c44b-e07fc1f90ae7"),
        ("boot_id", "7c9e6679742540de944be07fc1f90ae7"),
        ("firmware_version", ""),
        ("firmware_version", "x" * 65),
        ("capabilities", ["bme280"]),
        ("capabilities", {"sensors": "bme280"}),
        ("capabilities", {"features": {"tft_display": "yes"}}),
        ("friendly_name", "x" * 65),
        ("friendly_name", ""),
        ("friendly_name", "bell\u0007"),
        ("friendly_name", 5),
    ],
)
def test_a_bad_registration_names_its_field(api: Api, field: str, value: Any) -> None:
    answer = api.register(**{field: value})
    assert code_of(answer) == (400, "INVALID_REQUEST")
    [mistake, *_] = answer.json()["error"]["details"]["mistakes"]
    assert mistake["field"].split(".")[0] == field


def test_one_malformed_among_ninety_nine_good_blocks_none(api: Api) -> None:
    good = [api.reading() for _ in range(99)]
    answer = api.send(*good[:40], {"batch_id": "x"}, *good[40:]).json()
    assert answer["acknowledged_batch_ids"] == [each["batch_id"] for each in good]
    assert answer["duplicate_batch_ids"] == []
    [rejected] = answer["rejected"]
    assert (rejected["index"], rejected["batch_id"]) == (40, "x")
    assert rejected["code"] == "INVALID_HARDWARE_ID"
    assert rejected["message"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"batch_id": ""}, "INVALID_BATCH_ID"),
        ({"batch_id": "x" * 257}, "INVALID_BATCH_ID"),
        ({"batch_id": "with space"}, "INVALID_BATCH_ID"),
        ({"batch_id": 7}, "INVALID_BATCH_ID"),
        ({"hardware_id": "aa:bb:cc:dd:ee:ff"}, "INVALID_HARDWARE_ID"),
        ({"hardware_id": "AA:BB:CC:00:11:22"}, "DEVICE_NOT_REGISTERED"),
        ({"timestamp_ms": 946_684_799_999}, "INVALID_TIMESTAMP"),
        ({"timestamp_ms": 4_102_444_800_000}, "INVALID_TIMESTAMP"),
        ({"timestamp_ms": "1704067800000"}, "INVALID_TIMESTAMP"),
        ({"timestamp_ms": 1704067800000.5}, "INVALID_TIMESTAMP"),
        ({"timestamp_ms": True}, "INVALID_TIMESTAMP"),
        ({"timestamp_ms": 946_684_800_000}, "TOO_OLD"),
        ({"boot_id": "c9a646d3-9c61-1cb7-bfcd-ee2522c8f633"}, "INVALID_BOOT_ID"),
        ({"firmware_version": ""}, "INVALID_FIRMWARE_VERSION"),
        ({"sensors": {"t": "22.5"}}, "INVALID_SENSORS"),
        ({"sensors": {"t": True}}, "INVALID_SENSORS"),
        ({"sensors": {"t": {"c": 22.5}}}, "INVALID_SENSORS"),
        ({"sensors": {"t": [22.5]}}, "INVALID_SENSORS"),
        ({"sensors": {"t": None}}, "INVALID_SENSORS"),
        ({"sensors": {"Temp": 1}}, "INVALID_SENSORS"),
        ({"sensors": {"x" * 65: 1}}, "INVALID_SENSORS"),
        ({"sensors": {f"s{n}": n for n in range(101)}}, "INVALID_SENSORS"),
        ({"sensors": None}, "INVALID_SENSORS"),
        ({"sensor_status": {"bme280": "fine"}}, "INVALID_SENSOR_STATUS"),
        ({"sensor_status": None}, "INVALID_SENSOR_STATUS"),
    ],
)
def test_a_bad_reading_has_its_code_and_its_neighbour_is_stored(
    api: Api, changes: dict[str, Any], code: str
) -> None:
    neighbour = api.reading()
    answer = api.send(api.reading(**changes), neighbour).json()
    assert [(each["index"], each["code"]) for each in answer["rejected"]] == [(0, code)]
    assert answer["acknowledged_batch_ids"] == [neighbour["batch_id"]]


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e999", "nan", "-nan", "inf", "-inf", "INF"]
)
def test_a_number_that_json_lacks_is_rejected_alone(api: Api, value: str) -> None:
    good, bad = api.reading(), api.reading(sensors={"t": 777})
    body = orjson.dumps({"readings": [bad, good]}).replace(b":777", b":" + value.encode())
    answer = api.client.post("/data", headers=api.device, content=body).json()
    assert [each["code"] for each in answer["rejected"]] == ["INVALID_SENSORS"]
    assert answer["acknowledged_batch_ids"] == [good["batch_id"]]


def test_json_values_are_returned_as_sent(api: Api) -> None:
    sensors = {"zero": 0, "negative": -40.25, "large": 1.5e100, "small": 2.5e-100, "never_seen": 7}
    api.send(api.reading(sensors=sensors, sensor_status={})).raise_for_status()
    assert api.get("/latest").json()["sensors"] == sensors


def test_the_same_id_with_the_same_content_is_a_duplicate(api: Api) -> None:
    reading = api.reading()
    assert api.send(reading).json()["acknowledged_batch_ids"] == [reading["batch_id"]]
    bare = api.client.post("/data", headers=api.device, json=reading).json()
    assert bare == {
        "acknowledged_batch_ids": [],
        "duplicate_batch_ids": [reading["batch_id"]],
        "rejected": [],
    }


def test_the_same_id_with_other_content_is_a_conflict_and_changes_nothing(api: Api) -> None:
    reading = api.reading()
    api.send(reading).raise_for_status()
    other = Api(api.server)
    for sender, changed in (
        (api, reading | {"sensors": {"bme280_temp_c": 99}}),
        (api, reading | {"timestamp_ms": reading["timestamp_ms"] + 1}),
        (other, reading | {"hardware_id": other.hardware_id}),
    ):
        answer = sender.send(changed).json()
        assert [each["code"] for each in answer["rejected"]] == ["BATCH_ID_CONFLICT"]
    page = api.get("/readings").json()["readings"]
    assert [each["sensors"] for each in page] == [reading["sensors"]]
    assert other.get("/readings").json()["readings"] == []
    other.client.close()


def test_the_same_id_twice_in_a_request_is_stored_once(api: Api) -> None:
    reading = api.reading()
    changed = reading | {"sensors": {"bme280_temp_c": 1}}
    answer = api.send(reading, reading, changed).json()
    assert answer["acknowledged_batch_ids"] == [reading["batch_id"]]
    assert answer["duplicate_batch_ids"] == [reading["batch_id"]]
    assert [(e["index"], e["code"]) for e in answer["rejected"]] == [(2, "BATCH_ID_CONFLICT")]
    assert len(api.get("/readings").json()["readings"]) == 1


def test_101_readings_are_refused_whole(api: Api) -> None:
    assert code_of(api.send(*[api.reading() for _ in range(101)])) == (400, "BATCH_SIZE_EXCEEDED")
    assert api.get("/readings").json()["readings"] == []
    answer = api.send(*[api.reading() for _ in range(100)]).json()
    assert len(answer["acknowledged_batch_ids"]) == 100
