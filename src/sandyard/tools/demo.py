"""The demo: simulated learners lease sandboxes and devices send readings."""

import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandyard_client import Client, Connection, Credential, Device, Lease, Request, RetryPolicy
from sandyard_client.errors import ConflictError

SETTINGS = {
    "POOL_MIN_AVAILABLE": "8",
    "POOL_MAX_TOTAL": "40",
    "POOL_CREATE_PER_HOUR": "3600",
    "POOL_INTERVAL_SEC": "5",
    "CLEANUP_INTERVAL_SEC": "10",
}
"""Settings of its server: released sandboxes are soon replaced."""
_LEARNERS = 16
_LESSON_SEC = (15.0, 90.0)
_COURSES = ("intro-to-sql", "kubernetes-101", "dns-basics")
_DEVICES = ("Greenhouse north", "Greenhouse south", "Cold store", "Weather mast")
_READ_EVERY_SEC = 5.0
_HOUR_SEC = 3600
_DAY_SEC = 24 * _HOUR_SEC

Clock = Callable[[], float]


@dataclass
class Classroom:
    """Learners who arrive, lease a sandbox for a lesson, and release it."""

    client: Client
    draw: random.Random
    clock: Clock = time.time
    leases: dict[str, tuple[Lease, float]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 1_000_000)))

    def reserve(self) -> None:
        """Reserve for a course tomorrow, once."""
        tomorrow = (int(self.clock()) // _DAY_SEC + 1) * _DAY_SEC
        wanted = {"track_prefix": "kubernetes-201", "count": 6, "note": "Workshop for beginners"}
        wanted |= {"from": tomorrow + 9 * _HOUR_SEC, "to": tomorrow + 17 * _HOUR_SEC}
        path = "/v1/admin/reservations"
        listed = self.client.call(Request("GET", path, Credential.ADMIN))["reservations"]
        if not any(each["track_prefix"] == wanted["track_prefix"] for each in listed):
            self.client.call(Request("POST", path, Credential.ADMIN, json=wanted))

    def pass_time(self) -> None:
        """Learners whose lesson is over leave; a new one may arrive."""
        for track, (lease, ends_at) in list(self.leases.items()):
            if self.clock() >= ends_at:
                lease.release()
                del self.leases[track]
        if len(self.leases) < _LEARNERS and self.draw.random() < 0.5:
            self._come()

    def _come(self) -> None:
        track = f"{self.draw.choice(_COURSES)}-{next(self._numbers)}"
        try:
            lease = Lease.acquire(track=track, client=self.client)
        except ConflictError:  # none is free now
            return
        self.leases[track] = (lease, self.clock() + self.draw.uniform(*_LESSON_SEC))

    def end(self) -> None:
        for lease, _ in self.leases.values():
            lease.release()
        self.leases.clear()


@dataclass
class Fleet:
    """Devices with two sensors each, which start with an hour of readings."""

    devices: list[Device]
    clock: Clock = time.time
    sent_at: float = 0.0

    def begin(self) -> None:
        now = self.clock()
        for number, device in enumerate(self.devices):
            device.register()
            past = range(int(now) - _HOUR_SEC, int(now), 60)
            device.send([_reading(number, at) for at in past])

    def pass_time(self) -> None:
        now = self.clock()
        if now - self.sent_at < _READ_EVERY_SEC:
            return
        self.sent_at = now
        for number, device in enumerate(self.devices):
            device.send([_reading(number, now)])


def _reading(number: int, at: float) -> dict[str, Any]:
    temperature = 20 + number + 3 * math.sin(at / 600 + number)
    humidity = 55 - 4 * number + 8 * math.cos(at / 900 + number)
    sensors = {"temperature": round(temperature, 1), "humidity": round(humidity, 1)}
    return {"timestamp_ms": int(at * 1000), "sensors": sensors}


@contextmanager
def actors(url: str, data_dir: Path, draw: random.Random) -> Iterator[tuple[Classroom, Fleet]]:
    """Uses the tokens of the server on this machine; the devices' buffers are beside its data."""
    secrets = {
        name: (data_dir / "secrets" / file).read_text().strip()
        for name, file in (
            ("track_token", "broker_api_token"),
            ("admin_token", "broker_admin_token"),
            ("telemetry_token", "telemetry_admin_token"),
        )
    }
    with ExitStack() as stack:
        client = stack.enter_context(_client(url, **secrets))
        request = Request("POST", "/telemetry/v1/api-keys", Credential.TELEMETRY, json={})
        key = client.call(request)["api_key"]
        sender = stack.enter_context(_client(url, device_key=key))
        devices = [
            stack.enter_context(_device(number, sender, data_dir))
            for number in range(len(_DEVICES))
        ]
        yield Classroom(client, draw), Fleet(devices)


def _client(url: str, **credentials: Any) -> Client:
    return Client(Connection(url, **credentials), retries=RetryPolicy(within_sec=10))


def _device(number: int, client: Client, data_dir: Path) -> Device:
    return Device(
        f"DE:40:00:00:00:{number:02X}",
        firmware_version="1.4.2",
        buffer=data_dir / f"demo-device-{number}.db",
        client=client,
        friendly_name=_DEVICES[number],
    )
