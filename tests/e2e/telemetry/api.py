"""The calls of one device and of an operator, over real HTTP."""

import time
from typing import Any
from uuid import uuid4

import httpx

from tests.support.servers.processes import ServerProcess

BOOT_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
HOUR_MS = 3_600_000


def now_ms() -> int:
    return int(time.time() * 1000)


class Api:
    """The calls of one device and of an operator."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.client = httpx.Client(base_url=f"{server.url}/telemetry/v1", timeout=30)
        self.operator = server.operator
        self.key = self.new_key()
        self.device = {"X-API-Key": self.key["api_key"]}
        self.hardware_id = random_mac()
        self.register().raise_for_status()

    def new_key(self) -> dict[str, Any]:
        answer = self.client.post("/api-keys", headers=self.operator).raise_for_status()
        made: dict[str, Any] = answer.json()
        return made

    def registration(self, **changes: Any) -> dict[str, Any]:
        return {
            "hardware_id": self.hardware_id,
            "boot_id": BOOT_ID,
            "firmware_version": "1.0.16",
            "capabilities": {"sensors": ["bme280"], "features": {"tft_display": True}},
        } | changes

    def register(self, **changes: Any) -> httpx.Response:
        return self.client.post("/register", headers=self.device, json=self.registration(**changes))

    def reading(self, **changes: Any) -> dict[str, Any]:
        return {
            "hardware_id": self.hardware_id,
            "timestamp_ms": now_ms(),
            "batch_id": f"{self.hardware_id}_{BOOT_ID}_{uuid4().hex}",
            "boot_id": BOOT_ID,
            "firmware_version": "1.0.16",
            "sensors": {"bme280_temp_c": 22.5, "humidity_pct": 45},
            "sensor_status": {"bme280": "ok"},
        } | changes

    def send(self, *readings: Any) -> httpx.Response:
        return self.client.post("/data", headers=self.device, json={"readings": readings})

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        url = f"/devices/{self.hardware_id}{path}"
        return self.client.get(url, headers=self.operator, params=parameters)


def random_mac() -> str:
    return ":".join(uuid4().hex[2 * n : 2 * n + 2] for n in range(6)).upper()


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def all_readings(api: Api, **parameters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = api.get("/readings", limit=1000, **parameters, **cursor).json()
        found += page["readings"]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}
