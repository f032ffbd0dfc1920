"""Load for locust: tracks, users of the Platform and devices, at a rate independent of responses.

Locust's users wait for their responses, so a slow server would get fewer requests. Here a user only
starts calls when they are due, each in its own greenlet (open loop). docs/gamedays.md explains the
results.
"""

import os
import random
import time
from argparse import ArgumentParser
from uuid import uuid4

import gevent
from locust import FastHttpUser, constant_throughput, events, task
from locust.env import Environment

STARTS_PER_USER = 10
ASKS_AGAIN = 0.3
CALLS_PER_TRACK = 2 + ASKS_AGAIN
TRACK_TOKEN = os.environ.get("BROKER_API_TOKEN", "")
PLATFORM_KEY = os.environ.get("SANDYARD_API_KEY", "")
DEVICE_KEY = os.environ.get("SANDYARD_DEVICE_KEY", "")
BOOT_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


@events.init_command_line_parser.add_listener
def _add_rate(parser: ArgumentParser) -> None:
    parser.add_argument("--rate", type=int, default=1000, help="Requests per second of tracks")


@events.init.add_listener
def _set_users(environment: Environment, **_: object) -> None:
    """As many users as the rate needs; kinds without a credential are left out."""
    if environment.parsed_options is None:
        return
    starts = environment.parsed_options.rate / CALLS_PER_TRACK
    Tracks.fixed_count = max(1, round(starts / STARTS_PER_USER)) if TRACK_TOKEN else 0
    PlatformUsers.fixed_count = 1 if PLATFORM_KEY else 0
    Devices.fixed_count = 1 if DEVICE_KEY else 0
    environment.user_classes = [
        each for each in (Tracks, PlatformUsers, Devices) if each.fixed_count
    ]
    users = sum(each.fixed_count for each in environment.user_classes)
    environment.parsed_options.num_users = environment.parsed_options.spawn_rate = users


class OpenLoopUser(FastHttpUser):
    """Starts `visit` ten times a second, however long it takes."""

    abstract = True
    concurrency = 1000
    wait_time = constant_throughput(STARTS_PER_USER)

    @task
    def start_visit(self) -> None:
        gevent.spawn(self.visit)

    def visit(self) -> None:
        """One complete visit."""


class Tracks(OpenLoopUser):
    """Each visit is one track: it claims, three in ten retry the claim, and it marks."""

    def visit(self) -> None:
        headers = {"Authorization": f"Bearer {TRACK_TOKEN}", "X-Track-ID": f"load-{uuid4().hex}"}
        sandbox_id = self._claim(headers, "claim")
        if sandbox_id is None:
            return
        if random.random() < ASKS_AGAIN:  # noqa: S311 - load, no secret
            self._claim(headers, "claim again")
        path = f"/v1/sandboxes/{sandbox_id}/mark-for-deletion"
        self.client.post(path, headers=headers, name="mark")

    def _claim(self, headers: dict[str, str], name: str) -> str | None:
        """409 is a valid response, not a failure: the pool is empty."""
        with self.client.post(
            "/v1/allocate", headers=headers, name=name, catch_response=True
        ) as answer:
            if answer.status_code == 409:
                answer.success()
            return answer.json()["sandbox_id"] if answer.status_code in (200, 201) else None


class PlatformUsers(OpenLoopUser):
    """Each visit lists the user's sandboxes and projects."""

    def visit(self) -> None:
        headers = {"Authorization": f"Bearer {PLATFORM_KEY}"}
        self.client.get("/api/v1/sandboxes", headers=headers, name="sandboxes")
        self.client.get("/api/v1/projects", headers=headers, name="projects")


class Devices(OpenLoopUser):
    """Each visit is one reading of one of a hundred devices, which register first."""

    def on_start(self) -> None:
        for number in range(100):
            self._send("register", {"hardware_id": _hardware_id(number)}, "register")

    def visit(self) -> None:
        reading = {
            "hardware_id": _hardware_id(random.randrange(100)),  # noqa: S311
            "timestamp_ms": time.time_ns() // 1_000_000,
            "batch_id": f"load_{uuid4().hex}",
            "sensors": {"bme280_temp_c": 22.5},
            "sensor_status": {"bme280": "ok"},
        }
        self._send("data", reading, "reading")

    def _send(self, path: str, body: dict[str, object], name: str) -> None:
        about = {"boot_id": BOOT_ID, "firmware_version": "1.0.16"}
        if path == "register":
            about["capabilities"] = {"sensors": ["bme280"]}  # type: ignore[assignment]
        headers = {"X-API-Key": DEVICE_KEY}
        self.client.post(f"/telemetry/v1/{path}", json=about | body, headers=headers, name=name)


def _hardware_id(number: int) -> str:
    return f"AA:BB:CC:DD:EE:{number:02X}"
