"""Devices that send readings, and send them again until each is acknowledged."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import httpx

from sandyard.tools.gameday.model import Promise
from sandyard.tools.gameday.promises import NO_ANSWER, Violation, other_errors
from sandyard.tools.gameday.workload import RETRY_SEC, Workload

OPERATOR_TOKEN = "gameday-operator-token"  # noqa: S105 - for this run's servers on loopback
_DEVICES = 10
_BOOT_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
_AT_ONCE = 3
_TOLD_WELL = {key: {200, 503, NO_ANSWER} for key in ("send", "list")}


class Devices(Workload):
    def __init__(self, client: httpx.AsyncClient, urls: Sequence[str]) -> None:
        super().__init__(client, urls)
        self._operator = {"Authorization": f"Bearer {OPERATOR_TOKEN}"}
        self._device: Mapping[str, str] = {}
        self._ids = [f"AA:BB:CC:DD:EE:{number:02X}" for number in range(_DEVICES)]
        self.sent: dict[str, list[str]] = {each: [] for each in self._ids}
        """The batch ids of each device's readings."""
        self.unclear: set[str] = set()
        """Those without an acknowledgement."""
        self.rejected: list[str] = []

    async def prepare(self) -> None:
        base = self._urls[0] + "/telemetry/v1"
        made = await self._client.post(f"{base}/api-keys", headers=self._operator)
        self._device = {"X-API-Key": made.raise_for_status().json()["api_key"]}
        for each in self._ids:
            about = {"hardware_id": each, "boot_id": _BOOT_ID, "firmware_version": "1.0.16"}
            body = {**about, "capabilities": {"sensors": ["bme280"], "features": {}}}
            answer = await self._client.post(f"{base}/register", headers=self._device, json=body)
            answer.raise_for_status()
        self.begin()

    async def run(self, per_second: int, ending: asyncio.Event) -> None:
        turns = itertools.cycle(self._ids)
        await self.start_at_rate(per_second, ending, lambda: self._send(next(turns)))

    async def _send(self, hardware_id: str) -> None:
        """The same readings, until all of them are acknowledged, and then once more."""
        readings = [self._reading(hardware_id) for _ in range(_AT_ONCE)]
        batch_ids = [each["batch_id"] for each in readings]
        self.sent[hardware_id] += batch_ids
        self.unclear |= {*batch_ids}
        for _ in range(2):
            answer = await self.until_answered(
                *("send", hardware_id, "POST", "/telemetry/v1/data"),
                headers=self._device,
                body={"readings": readings},
            )
            if answer is not None:
                taken = {*answer["acknowledged_batch_ids"], *answer["duplicate_batch_ids"]}
                self.unclear -= taken
                self.rejected += [each["batch_id"] for each in answer["rejected"]]
            await asyncio.sleep(RETRY_SEC)

    def _reading(self, hardware_id: str) -> dict[str, Any]:
        return {
            "hardware_id": hardware_id,
            "timestamp_ms": int(time.time() * 1000),
            "batch_id": f"{hardware_id}_{_BOOT_ID}_{uuid4().hex}",
            "boot_id": _BOOT_ID,
            "firmware_version": "1.0.16",
            "sensors": {"bme280_temp_c": 22.5},
            "sensor_status": {"bme280": "ok"},
        }

    async def audit(self) -> Sequence[Violation]:
        found = [*other_errors(self.calls, _TOLD_WELL)]
        for what, batch_ids in (("acknowledged", self.unclear), ("accepted", self.rejected)):
            broken = (f"{each} was not {what}" for each in batch_ids)
            found += [Violation(Promise.EXACTLY_ONCE, each) for each in broken]
        for hardware_id, sent in self.sent.items():
            stored = Counter(await self._stored(hardware_id))
            for batch_id in {*sent, *stored}:
                if stored[batch_id] != 1:
                    what = f"{batch_id} is stored {stored[batch_id]} times"
                    found.append(Violation(Promise.EXACTLY_ONCE, what))
        return found

    async def _stored(self, hardware_id: str) -> list[str]:
        batch_ids: list[str] = []
        cursor = ""
        while True:
            path = f"/telemetry/v1/devices/{hardware_id}/readings?limit=1000{cursor}"
            page = await self.until_answered(
                "list", hardware_id, "GET", path, headers=self._operator, is_audit=True
            )
            batch_ids += [each["batch_id"] for each in page["readings"]]
            if page["next_cursor"] is None:
                return batch_ids
            cursor = f"&cursor={page['next_cursor']}"
