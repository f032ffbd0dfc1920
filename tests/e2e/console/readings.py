"""A device of the console's tests, and what it sends."""

import time

import httpx

from tests.support.servers.processes import ServerProcess

HARDWARE_ID = "AA:BB:CC:DD:EE:01"
BOOT_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def send_reading(
    console: ServerProcess,
    api_key: str,
    name: str,
    *,
    hardware_id: str = HARDWARE_ID,
    sensor: str = "temperature",
) -> None:
    now_ms = int(time.time() * 1000)
    about = {"hardware_id": hardware_id, "boot_id": BOOT_ID, "firmware_version": "1.0.0"}
    reading = {
        **about,
        "batch_id": f"batch-{now_ms}",
        "timestamp_ms": now_ms,
        "sensors": {sensor: 21.5},
        "sensor_status": {sensor: "ok"},
    }
    with httpx.Client(base_url=f"{console.url}/telemetry/v1", timeout=60) as client:
        client.headers["X-API-Key"] = api_key
        client.post("/register", json=about | {"friendly_name": name}).raise_for_status()
        answer = client.post("/data", json=reading)
        assert answer.json()["rejected"] == [], answer.text


def send_hour(console: ServerProcess, api_key: str, name: str, missing: range) -> None:
    """A reading of two sensors each minute of the last hour, but for the missing minutes; one of
    the sensors had failed in the half hour before."""
    now_ms = int(time.time() * 1000)
    about = {"hardware_id": HARDWARE_ID, "boot_id": BOOT_ID, "firmware_version": "1.4.2"}
    readings = [
        about
        | {
            "batch_id": f"hour-{minute}",
            "timestamp_ms": now_ms - minute * 60_000,
            "sensors": {"temperature": 20 + minute % 17 / 4}
            | ({"humidity": 55 - minute % 23} if minute < 30 else {}),
            "sensor_status": {"temperature": "ok", "humidity": "ok" if minute < 30 else "error"},
        }
        for minute in range(60)
        if minute not in missing
    ]
    with httpx.Client(base_url=f"{console.url}/telemetry/v1", timeout=60) as client:
        client.headers["X-API-Key"] = api_key
        client.post("/register", json=about | {"friendly_name": name}).raise_for_status()
        answer = client.post("/data", json={"readings": readings}).raise_for_status()
        assert answer.json()["rejected"] == [], answer.text
